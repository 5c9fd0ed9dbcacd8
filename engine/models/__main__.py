"""``python -m engine.models fetch NAME``: have a base model on disk before anything needs it. Prints its directory."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from engine.models.registry import ModelError, resolve


def main(arguments: Sequence[str] | None = None) -> int:
    state_dir = Path(os.environ.get("MARLAAS_STATE", "var"))
    parser = argparse.ArgumentParser(prog="python -m engine.models")
    commands = parser.add_subparsers(dest="command", required=True)
    fetch = commands.add_parser("fetch", help="download and convert a base model once")
    fetch.add_argument("name")
    fetch.add_argument("--models-dir", type=Path, default=state_dir / "models")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    try:
        print(resolve(options.name, options.models_dir).path)
    except ModelError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
