"""Work that a child process can find by name."""

from __future__ import annotations

import os
import subprocess
import sys
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


def orphaned(settings: Any, order: int, say: Any) -> None:
    """Fails, and leaves a child behind that has given itself a title, as vLLM's engine core does."""
    code = "import setproctitle, sys, time; setproctitle.setproctitle('orphan'); print('up', flush=True); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    child.stdout.readline()
    raise ValueError(f"left {child.pid}")
