"""What is left when a keeper itself was killed: its part dies with it, but the part's own children fall to the supervisor.

Only a process that does nothing but supervise may adopt; an orphan is a child of ours in a foreign session that is no living keeper.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Collection

from deploy.supervisor.keeper import LIBC, PR_SET_CHILD_SUBREAPER, descendants


def adopt() -> None:
    """From now on, processes below us that lose their parent become our children instead of init's."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans(keepers: Collection[int]) -> None:
    """SIGKILL every orphan and what it started; their keeper is gone, so there is nobody to end them gently."""
    ours = os.getsid(0)
    for pid in _children():
        if pid in keepers or _session(pid) in (ours, None):
            continue
        for member in (*descendants(pid), pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as children:
        return [int(pid) for pid in children.read().split()]


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None
