"""The exit status of a process in words."""

from __future__ import annotations

import signal

# The status of a worker that ended because the template did, or was taken for ended then: nobody's fault but ours.
ORPHANED = -10_000


def ending(status: int | None) -> str:
    """``status``: an exit code, negative for a signal, None where the process lives on without its reply channel."""
    if status is None:
        return "its process closed the reply channel"
    if status == -signal.SIGSYS:
        return "its process was killed for a forbidden system call"
    if status < 0:
        return f"its process was killed by {_name(-status)}"
    return f"its process ended itself with exit status {status}"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
