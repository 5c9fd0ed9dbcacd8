"""Work that a child process can find by name."""

from __future__ import annotations

import os
from typing import Any


def doubled(settings: Any, order: int, say: Any) -> int:
    say("doubling…")
    return 2 * order


def refused(settings: Any, order: int, say: Any) -> int:
    raise ValueError(f"{order} is too much")


def lost(settings: Any, order: int, say: Any) -> int:
    os._exit(3)


def silent(settings: Any, order: int, say: Any) -> int:
    import threading

    threading.Event().wait(60.0)
    return order


def cores(settings: Any, order: int, say: Any) -> set[int]:
    return os.sched_getaffinity(0)
