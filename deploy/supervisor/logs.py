"""The parts' log files: appended to by the parts themselves, kept bounded by the supervisor."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MAX_BYTES = 32 * 2**20
KEPT = 3


def open_log(path: Path) -> int:
    """A descriptor for a child's output. Opened for appending, so that truncating the file is safe while it writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


def rotate(path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> bool:
    """Copy a log that grew past ``max_bytes`` to ``<name>.1`` (older ones move up) and truncate it. True when it did.

    Copy and truncate instead of rename, since the writer keeps its descriptor; lines written in between are lost.
    """
    if not path.exists() or path.stat().st_size <= max_bytes:
        return False
    for number in range(kept - 1, 0, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)
    return True


def tail(path: Path, lines: int, *, from_byte: int = 0) -> list[str]:
    """The last lines of what was written after ``from_byte``."""
    return read_from(path, from_byte)[-200_000:].splitlines()[-lines:]


def read_from(path: Path, from_byte: int) -> str:
    try:
        with path.open("rb") as log:
            # A log that was rotated meanwhile is shorter than the mark: then all of it is new.
            log.seek(from_byte if from_byte <= path.stat().st_size else 0)
            return log.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
