"""At most one supervisor per state folder, and a way to find it.

The lock is an flock whose descriptor every keeper inherits: it is free only when the supervisor AND all its parts are gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path


class AlreadyRunning(Exception):
    """Another supervisor holds the state folder; ``owner`` is what it wrote about itself (may be empty while it starts or ends)."""

    def __init__(self, owner: dict[str, object]):
        self.owner = owner
        who = f"pid {owner['pid']}, {owner['url']}" if owner else "it is just starting or ending"
        super().__init__(f"MARLaaS runs already ({who}). Stop it with: make down")


class Lock:
    def __init__(self, path: Path):
        self.path = path
        self.descriptor: int | None = None

    def acquire(self, owner: dict[str, object]) -> None:
        """Take the lock and write ``owner`` into it; raises ``AlreadyRunning``."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyRunning(read_owner(self.path)) from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(owner).encode())
        self.descriptor = descriptor

    def release(self) -> None:
        if self.descriptor is not None:
            os.ftruncate(self.descriptor, 0)
            os.close(self.descriptor)
            self.descriptor = None


def read_owner(path: Path) -> dict[str, object]:
    try:
        return json.loads(path.read_text() or "{}")
    except (FileNotFoundError, json.JSONDecodeError):
        return {}


def is_free(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


def stop_owner(path: Path, *, patience_seconds: float, pause: Callable[[float], None] = time.sleep) -> bool:
    """SIGTERM to the supervisor that holds ``path``, SIGKILL after ``patience_seconds``; False when none held it.

    Raises ``TimeoutError`` when its parts outlive even that.
    """
    if is_free(path):
        return False
    pid = read_owner(path).get("pid")
    for chosen, seconds in ((signal.SIGTERM, patience_seconds), (signal.SIGKILL, 20.0)):
        if isinstance(pid, int):
            _signal(pid, chosen)
        give_up_at = time.monotonic() + seconds
        while time.monotonic() < give_up_at:
            if is_free(path):
                return True
            pause(0.1)
    raise TimeoutError(f"processes of supervisor {pid} still hold {path}")


def _signal(pid: int, chosen: signal.Signals) -> None:
    try:
        os.kill(pid, chosen)
    except ProcessLookupError:
        return  # only its keepers are left, and they are ending their parts
