"""Log files that stay bounded while their writers keep them open: what grew too large moves aside, and they go on at the start."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from pathlib import Path

MAX_BYTES = 32 * 2**20
KEPT = 3


def rotate(path: Path, *, max_bytes: int = MAX_BYTES, kept: int = KEPT) -> bool:
    """Copy a log that grew past ``max_bytes`` to ``<name>.1`` (older ones move up) and truncate it. True when it did.

    Copy and truncate instead of rename, since its writers keep their descriptors (opened for appending); lines written in between are
    lost. Raises ``OSError``, as on a full disk; then nothing has moved.
    """
    if not path.exists() or path.stat().st_size <= max_bytes:
        return False
    fresh = path.with_name(f"{path.name}.0")
    try:
        shutil.copyfile(path, fresh)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise
    for number in range(kept - 1, -1, -1):
        older = path.with_name(f"{path.name}.{number}")
        if older.exists():
            older.replace(path.with_name(f"{path.name}.{number + 1}"))
    os.truncate(path, 0)
    return True


class BoundedHandler(logging.StreamHandler):
    """Writes to ``path`` through ``descriptor``, which is opened for appending, and looks at its size after each line.

    Whatever else this process and its children write there counts too.
    """

    def __init__(self, path: Path, descriptor: int, *, max_bytes: int = MAX_BYTES):
        super().__init__(os.fdopen(descriptor, "w", buffering=1))
        self._path = path
        self._max_bytes = max_bytes

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        with contextlib.suppress(OSError):  # a full disk is not a reason to fail for whoever logs
            rotate(self._path, max_bytes=self._max_bytes)
