"""Runs one command and lets nothing of it survive: neither the supervisor's death nor the command's own.

The keeper is the sub-reaper of everything below it, so a daemonised or orphaned grandchild becomes its child instead of init's.
When the command ends, when SIGTERM comes, or when the supervisor dies (PR_SET_PDEATHSIG), the whole tree below is ended.

Standard library only, one file, because it is started as ``python -I -S keeper.py`` to cost little (about 10 MB, 30 ms).
Usage: keeper.py PARENT_PID GRACE_SECONDS NICENESS CORES COMMAND…    (CORES: "0,1", or "-" for all)
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
WATCHED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}
# Without a supervisor nobody waits for a tidy end, and a new supervisor may be starting already.
ORPHAN_GRACE_SECONDS = 5.0
SWEEP_GRACE_SECONDS = 2.0
LIBC = ctypes.CDLL(None, use_errno=True)


def descendants(root: int) -> Iterator[int]:
    """Process ids below ``root``, parents before children, as /proc shows them now."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := _parent_of(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    level = [root]
    while level:
        level = [pid for parent in level for pid in children.get(parent, [])]
        yield from level


def _parent_of(pid: int) -> int | None:
    """The parent of a living process; None for zombies and for what is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            state, parent = stat.read().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state in "ZX" else int(parent)


def run(parent: int, grace_seconds: float, niceness: int, cores: str, command: list[str]) -> int:
    """Returns the command's exit status as a shell gives it (128 + n after signal n)."""
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        return 1  # it died before the line above could be told
    child = _start(niceness, cores, command)
    status = _wait(child, parent, grace_seconds)
    _sweep(SWEEP_GRACE_SECONDS)
    return status


def _start(niceness: int, cores: str, command: list[str]) -> int:
    keeper = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != keeper:
            os._exit(1)
        os.setsid()  # its own, so that it may say how far the whole of it goes behind others (engine.device)
        os.nice(niceness)
        if cores != "-":
            os.sched_setaffinity(0, {int(core) for core in cores.split(",")})
        # Descriptor 3 and up hold the supervisor's lock: it is the keeper's to hold, not the command's.
        os.closerange(3, 1024)
        os.execvp(command[0], command)
    except OSError as error:
        print(f"cannot start {command[0]}: {error}", file=sys.stderr, flush=True)
        os._exit(127)


def _wait(child: int, parent: int, grace_seconds: float) -> int:
    """Wait for ``child``; pass a stop on to it, and kill it when the grace is over."""
    kill_at: float | None = None
    while True:
        if (status := _reap().get(child)) is not None:
            return status
        remaining = 3600.0 if kill_at is None else kill_at - time.monotonic()
        if remaining <= 0:
            os.kill(child, signal.SIGKILL)
            kill_at = time.monotonic() + 1.0
            continue
        info = signal.sigtimedwait(WATCHED, remaining)
        if info is not None and info.si_signo != signal.SIGCHLD and kill_at is None:
            os.kill(child, signal.SIGTERM)
            kill_at = time.monotonic() + (grace_seconds if os.getppid() == parent else min(grace_seconds, ORPHAN_GRACE_SECONDS))


def _reap() -> dict[int, int]:
    """Exit statuses of all children that have ended."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def _sweep(grace_seconds: float) -> None:
    """End everything that the command left: SIGTERM, then SIGKILL until nothing is there."""
    for chosen, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 10.0)):
        give_up_at = time.monotonic() + seconds
        told: set[int] = set()
        while left := list(descendants(os.getpid())):
            for pid in left:
                if chosen == signal.SIGKILL or pid not in told:
                    _kill(pid, chosen)
            told.update(left)
            _reap()
            if (remaining := give_up_at - time.monotonic()) <= 0:
                break
            signal.sigtimedwait(WATCHED, min(remaining, 0.2))
        _reap()


def _kill(pid: int, chosen: signal.Signals) -> None:
    try:
        os.kill(pid, chosen)
    except ProcessLookupError:
        return  # it ended between the look and the signal


if __name__ == "__main__":
    sys.exit(run(int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:]))
