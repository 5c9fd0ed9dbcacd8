"""Who may write: each manager claims the next epoch, and every write of an older one is refused.

``claim`` waits for a write that is under way and then fences it off: a manager that was declared dead but is only slow can
finish the one write it has begun, and none after it.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine.durable import make_directory, replace_file


class StaleEpoch(RuntimeError):
    """A newer manager has taken over; this one must stop."""


class Epoch:
    """The right to write below ``root``, held until somebody claims a higher ``number``."""

    def __init__(self, root: Path, number: int):
        self.root = root
        self.number = number

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Hold off claims during one write. Raises ``StaleEpoch`` when a newer manager exists."""
        with _locked(self.root, fcntl.LOCK_SH):
            current = _read(self.root)
            if current != self.number:
                raise StaleEpoch(f"epoch {self.number} was replaced by epoch {current}")
            yield


def claim(root: Path) -> Epoch:
    """Take the next epoch of ``root``; from now on all older ones are refused."""
    make_directory(root)
    with _locked(root, fcntl.LOCK_EX):
        number = _read(root) + 1
        replace_file(root / "EPOCH", str(number).encode())
    return Epoch(root, number)


def _read(root: Path) -> int:
    try:
        return int((root / "EPOCH").read_text())
    except FileNotFoundError:
        return 0


@contextmanager
def _locked(root: Path, mode: int) -> Iterator[None]:
    with open(root / "epoch.lock", "a") as file:
        fcntl.flock(file, mode)
        yield
