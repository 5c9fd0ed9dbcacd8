"""The parts' log files: appended to by the parts themselves, kept bounded by the supervisor (``engine.log_files``)."""

from __future__ import annotations

import os
from pathlib import Path


def open_log(path: Path) -> int:
    """A descriptor for a child's output. Opened for appending, so that truncating the file is safe while it writes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


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
