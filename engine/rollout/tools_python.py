"""The ``python`` tool: a model's program runs in the reward-runner's sandbox, never here. Every call starts afresh.

A program that goes wrong is a typed failure that the model reads: what it printed until then, what happened, and at which line.
"""

from __future__ import annotations

from typing import Protocol

from engine.rewards.sandbox import Failed, Limits, Ran
from engine.rewards.sandbox.verdicts import MAX_CALL_SECONDS
from engine.rewards.sandboxed import code_in
from engine.rollout.tools import CODE_ERROR, DENIED, TIMEOUT, UNAVAILABLE, Tool, ToolFailed

# Of a call's time: the rest is for starting the process, so that a program's own limit speaks before the call's.
RUNNING_SHARE = 0.9
LEAST_SECONDS = 0.01
_KINDS = {"timeout": TIMEOUT, "hard_timeout": TIMEOUT, "unavailable": UNAVAILABLE, "aborted": UNAVAILABLE}
_FORBIDDEN = ("PermissionError", "its process was killed for a forbidden system call")


class Programs(Protocol):
    """What ``engine.rewards.sandbox.Sandbox`` offers."""

    async def run_program(self, code: str, limits: Limits = ...) -> Ran: ...


def python_tool(programs: Programs | None, *, call_seconds: float) -> Tool:
    """The tool of one job. Without ``programs`` every call is unavailable: no code runs outside of a sandbox."""
    limits = Limits(call_seconds=max(LEAST_SECONDS, min(MAX_CALL_SECONDS, RUNNING_SHARE * call_seconds)))

    async def python(argument: str) -> str:
        if programs is None:
            raise ToolFailed(UNAVAILABLE, "this engine runs no code")
        ran = await programs.run_program(code_in(argument), limits)
        if ran.error is not None:
            raise ToolFailed(_kind(ran.error), _what_happened(ran, ran.error))
        return _printed(ran) or "nothing printed"

    return python


def _kind(error: Failed) -> str:
    denied = error.kind in ("exception", "crash") and error.message.startswith(_FORBIDDEN)
    return DENIED if denied else _KINDS.get(error.kind, CODE_ERROR)


def _what_happened(ran: Ran, error: Failed) -> str:
    where = f" (line {error.line})" if error.line is not None else ""
    before = f"\nprinted before: {_printed(ran)}" if ran.text.strip() else ""
    return f"{error.message}{where}{before}"


def _printed(ran: Ran) -> str:
    cut = f"… ({ran.dropped_bytes} more bytes)" if ran.dropped_bytes else ""
    return f"{ran.text.rstrip()}{cut}"
