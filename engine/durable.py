"""Writing files so that they are wholly there or not at all, whatever dies in between.

A file is staged under a name that no reader looks at, fsynced, renamed, and then its directory is fsynced. ``crash_at(name)`` is called
next to each of these steps: production passes nothing, tests pass a function that raises (the process dies here) at one name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

STAGING = ".staging"

CrashAt = Callable[[str], None]


def no_crash(name: str) -> None:
    """The crash hook of production: nothing happens at ``name``."""


def fsync_directory(path: Path) -> None:
    """Make the names inside ``path`` durable."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def fsync_file(path: Path) -> None:
    """Make the content of ``path`` durable, whoever wrote it."""
    _fsync(path, os.O_RDONLY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` and fsync it; the name itself is durable only after ``fsync_directory``."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, data: bytes, *, crash_at: CrashAt = no_crash, label: str = "file") -> None:
    """Put ``data`` at ``path`` atomically and durably. Crash points: ``{label}:staged``, ``{label}:renamed``."""
    staged = path.with_name(path.name + STAGING)
    write_synced(staged, data)
    crash_at(f"{label}:staged")
    os.replace(staged, path)
    crash_at(f"{label}:renamed")
    fsync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Create ``path`` (and parents) and make their names durable. An existing directory is fine."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    fsync_directory(path.parent)
