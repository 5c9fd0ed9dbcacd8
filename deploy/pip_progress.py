"""Turns pip's output on standard input into one line of progress on standard output. Standard library only: it runs before the locks.

Usage: pip … | pip_progress.py "Installing x" EXPECTED_PACKAGES. On a terminal the line is rewritten in place, elsewhere it is repeated
every so many packages.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from typing import TextIO

BAR_WIDTH = 24
REPEAT_EVERY = 40
SEEN = ("Collecting ", "Requirement already satisfied: ")


def show(lines: Iterable[str], what: str, expected: int, out: TextIO, clock: object = time.monotonic) -> None:
    started, seen, doing = clock(), 0, "asking"
    live = out.isatty()
    for line in lines:
        before = (seen, doing)
        seen += line.startswith(SEEN)
        doing = _doing(line, doing)
        if live and (seen, doing) != before:
            out.write(f"\r\033[K{what} {_bar(seen, expected)} {doing}")
        elif not live and seen != before[0] and seen % REPEAT_EVERY == 1:
            out.write(f"{what}: {seen} of about {max(seen, expected)}, {doing}\n")
        out.flush()
    seconds = f"{clock() - started:.0f} s"
    out.write(f"\r\033[K{what}: {seconds}\n" if live else f"{what}: {seconds}\n")


def _doing(line: str, before: str) -> str:
    words = line.split()
    if line.startswith(("Collecting", "Requirement already")):
        return words[1 if line.startswith("Coll") else 3].split("==")[0]
    if words[:1] == ["Downloading"]:
        return f"downloading {words[1].rsplit('/', 1)[-1].split('-')[0]} {' '.join(words[2:4])}"
    if line.startswith("Installing collected"):
        return "unpacking (a minute or so)"
    return before


def _bar(seen: int, expected: int) -> str:
    full = min(BAR_WIDTH, seen * BAR_WIDTH // max(expected, 1))
    return f"[{'█' * full}{'·' * (BAR_WIDTH - full)}] {seen}/{max(seen, expected)}"


if __name__ == "__main__":
    show(sys.stdin, sys.argv[1], int(sys.argv[2]), sys.stdout)
