"""Runs untrusted code under a soft time limit and puts into words how it failed. A convenience for tenants: the host's kill is the wall."""

from __future__ import annotations

import linecache
import os
import signal
import sys
import types
from collections.abc import Callable
from typing import Any

REWARD_FILE = "<reward>"
CODE_FILE = "<code>"
TESTS_FILE = "<tests>"
_OURS = frozenset({REWARD_FILE, CODE_FILE, TESTS_FILE})
_RENDER_SECONDS = 0.25
_MESSAGE_CHARACTERS = 500
_TRACE_FRAMES = 5
_BALLAST_BYTES = 2**20


class OutOfTime(BaseException):
    """Raised by the timer inside of the guarded call. Not an ``Exception``: a broad handler must not swallow it."""


class BadValue(Exception):
    """What ``grade`` answered is no reward; the words say why."""


class Guard:
    """``run(seconds, function, *arguments)`` → (value, None) or (None, error). One per process: it owns SIGALRM."""

    def __init__(self) -> None:
        self._armed = False
        # Given up when memory has ended, so that there is room to say so.
        self._ballast: bytearray | None = bytearray(_BALLAST_BYTES)
        self._set_timer = signal.setitimer
        self._flush = sys.stdout.flush
        signal.signal(signal.SIGALRM, self._ring)

    def _ring(self, signum: int, frame: types.FrameType | None) -> None:
        if self._armed:
            raise OutOfTime

    def run(self, seconds: float, function: Callable[..., Any], *arguments: Any) -> tuple[Any, dict | None]:
        try:
            self._armed = True
            self._set_timer(signal.ITIMER_REAL, seconds)
            try:
                value = function(*arguments)
            finally:
                # The timer runs on: the next call sets it anew, and until then nobody listens.
                self._armed = False
                self._flush()
            return value, None
        except MemoryError as error:
            self._ballast = None
            trace = own_frames(error)
            error.__traceback__ = None
            words = error.args[0] if error.args and type(error.args[0]) is str else "more than the memory limit"
            return None, _error("memory", f"MemoryError: {words[:_MESSAGE_CHARACTERS]}", trace)
        except OutOfTime as error:
            return None, _error("timeout", f"no answer within {seconds:g} s", own_frames(error))
        except BadValue as error:
            return None, _error("bad_value", str(error), [])
        except (SystemExit, KeyboardInterrupt) as error:
            return None, self._described("exit", error)
        except BaseException as error:
            return None, self._described("exception", error)

    def _described(self, kind: str, error: BaseException) -> dict:
        """The words of an exception may come from the tenant's ``__str__``, so they have their own time limit."""
        try:
            self._armed = True
            self._set_timer(signal.ITIMER_REAL, _RENDER_SECONDS)
            try:
                return describe(kind, error)
            finally:
                self._armed = False
                self._set_timer(signal.ITIMER_REAL, 0)
        except BaseException:
            return _error(kind, "an exception that cannot be shown", own_frames(error))


def describe(kind: str, error: BaseException) -> dict:
    name = type(error).__name__[:80]
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    message = f"{name}: {str(text)[:_MESSAGE_CHARACTERS]}" if text else name
    if isinstance(error, SyntaxError) and error.filename in _OURS:
        return _error(kind, message, [(error.lineno or 1, "<module>")])
    return _error(kind, message, own_frames(error))


def own_frames(error: BaseException) -> list[tuple[int, str]]:
    """(line, function) of the last few frames that lie in the tenant's own source."""
    frames, step = [], error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if code.co_filename in _OURS:
            frames.append((step.tb_lineno, code.co_name))
        step = step.tb_next
    return frames[-_TRACE_FRAMES:]


def module(name: str, source: str, file: str) -> types.ModuleType:
    """An empty module whose source tracebacks can quote."""
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    made = types.ModuleType(name)
    made.__file__ = file
    return made


def execute(source: str, file: str, namespace: dict) -> None:
    exec(compile(source, file, "exec", dont_inherit=True), namespace)


def leave(status: int) -> None:
    os._exit(status)


def _error(kind: str, message: str, trace: list[tuple[int, str]]) -> dict:
    return {"kind": kind, "message": message, "line": trace[-1][0] if trace else None, "trace": trace}
