"""One child of the template: takes its descriptors, puts up the walls, says which stand, and serves requests until it is killed."""

from __future__ import annotations

import faulthandler
import fcntl
import gc
import io
import os
import signal
import sys
from collections.abc import Callable

from . import lockdown, probing, wire
from .coding import Coder
from .grading import Grader
from .guard import REWARD_FILE, Guard, execute

_FREE_DESCRIPTOR = 64
_BROKEN = 73
_WARM_ROUNDS = 3
_FILELESS_FINDERS = ("BuiltinImporter", "FrozenImporter")


def become(descriptors: dict[int, int], walls: dict, finder: object) -> None:
    """Never returns, whatever happens: above it lies the template's own loop. ``descriptors``: by the numbers that they shall have."""
    try:
        _rearrange(descriptors)
        _forget_the_template(finder)
        report = lockdown.lock(**walls)
        operations = _operations()
        gc.freeze()
        wire.send({"ready": report})
        while True:
            request = wire.receive()
            operations[request["op"]](request)
    except OSError as error:
        wire.send({"failed": f"a wall does not stand: {error.strerror}"})
    finally:
        # Reached by what a tenant did to the modules that this one needs.
        os._exit(_BROKEN)


def _rearrange(descriptors: dict[int, int]) -> None:
    moved = {number: fcntl.fcntl(fd, fcntl.F_DUPFD, _FREE_DESCRIPTOR) for number, fd in descriptors.items()}
    for number, fd in moved.items():
        os.dup2(fd, number)
    os.closerange(max(descriptors) + 1, os.sysconf("SC_OPEN_MAX"))


def _forget_the_template(finder: object) -> None:
    sys.meta_path[:] = [*(found for found in sys.meta_path if getattr(found, "__name__", "") in _FILELESS_FINDERS), finder]
    sys.path.clear()
    sys.path_hooks.clear()
    sys.path_importer_cache.clear()
    sys.argv = [""]
    # The call itself is refused, and modules ask at import: they learn the architecture, and not whose machine this is.
    os.uname = _uname
    output = io.FileIO(1, "w", closefd=False)
    # Line by line: what was printed before a hang is what its author wants to see.
    sys.stdout = sys.__stdout__ = io.TextIOWrapper(output, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    sys.stderr = sys.__stderr__ = sys.stdout
    # The host asks with SIGUSR1, just before it kills, at which line the process hangs.
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


_UNAME = os.uname_result(("Linux", "sandbox", "", "", os.uname().machine))


def _uname() -> os.uname_result:
    return _UNAME


def _operations() -> dict[str, Callable[[dict], None]]:
    """What the host may ask for. Ready ahead of time, and once in use: each page written for the first time is copied from the template."""
    keeper = Guard()
    for _ in range(_WARM_ROUNDS):
        keeper.run(1.0, execute, "def grade(sample, item):\n    return 1.0\nx = 1 / 0", REWARD_FILE, {})
    grader, coder = Grader(keeper), Coder(keeper)
    return {
        "load": grader.load,
        "grade": grader.grade,
        "program": coder.program,
        "define": coder.define,
        "call": coder.call,
        "judge": coder.judge,
        "probe": lambda request: wire.send({"succeeded": probing.attempts()}),
    }
