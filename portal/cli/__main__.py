"""``python -m portal.cli``: the command ``marl`` from a checkout."""

from portal.cli.main import main

main()
