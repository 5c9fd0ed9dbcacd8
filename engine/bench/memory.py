"""How much memory a running engine takes, over all of its processes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def memory_bytes(pids: Iterable[int]) -> dict[str, int]:
    """``pss``: shared pages counted once, divided among their users; ``rss``: the plain sum. Processes that ended count nothing."""
    total = {"pss": 0, "rss": 0}
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        for line in rollup.splitlines():
            name, _, rest = line.partition(":")
            if name.lower() in total:
                total[name.lower()] += int(rest.split()[0]) * 1024
    return total
