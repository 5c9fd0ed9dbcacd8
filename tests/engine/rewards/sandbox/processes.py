"""What runs below a process, read from /proc."""

from __future__ import annotations

from pathlib import Path


def below(pid: int) -> set[int]:
    """All living descendants of ``pid``."""
    parents = {child: parent for child, parent, _ in _all()}
    found: set[int] = set()
    for child in parents:
        line = child
        while line in parents and line != pid:
            line = parents[line]
        if line == pid and child != pid:
            found.add(child)
    return found


def alive(pids: set[int]) -> set[int]:
    return {pid for pid, _, state in _all() if pid in pids and state != "Z"}


def _all() -> list[tuple[int, int, str]]:
    found = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                state, parent = (path / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            found.append((int(path.name), int(parent), state))
    return found
