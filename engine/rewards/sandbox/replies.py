"""Reads a worker's replies without believing them: shapes, ranges and texts are checked; anything odd is ``Forged``."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from engine.rewards.sandbox.frames import Forged
from engine.rewards.sandbox.verdicts import MAX_ABS_REWARD, Failed, Graded, NotApplicable, Verdict

# What a worker may say of its own call. Crashes, kills and forgeries are for the host to see.
_TOLD_KINDS = frozenset({"import_error", "exception", "exit", "timeout", "memory", "bad_value"})
_MESSAGE_CHARACTERS = 600
_NAME_CHARACTERS = 64
_TRACE_FRAMES = 5
_MAX_LINE = 10**7
_MAX_COMPONENTS = 32
_NOT_APPLICABLE = NotApplicable()


def verdict(reply: dict[str, Any], *, ask: str) -> Verdict:
    """The reply to the question named ``ask``."""
    if reply.get("ask") != ask:
        raise Forged("a reply to something that was not asked")
    if "error" in reply:
        return failed(reply["error"])
    if "reward" not in reply:
        raise Forged("a reply without reward or error")
    if reply["reward"] is None:
        return _NOT_APPLICABLE
    if "components" in reply:
        return Graded(reward=_number(reply["reward"]), components=_components(reply["components"]))
    return graded(_number(reply["reward"]))


@lru_cache(maxsize=4096)
def graded(reward: float) -> Graded:
    """A bare reward; most are one of a few numbers, and making the object costs more than reading the reply."""
    return Graded(reward=reward)


def failed(raw: Any) -> Failed:
    if type(raw) is not dict or type(raw.get("kind")) is not str or raw["kind"] not in _TOLD_KINDS:
        raise Forged("an error of no known kind")
    trace = raw.get("trace")
    if type(trace) is not list or len(trace) > _TRACE_FRAMES:
        raise Forged("an error with a strange trace")
    return Failed(kind=raw["kind"], message=text(raw.get("message")), line=_line(raw.get("line")), trace=tuple(map(_frame, trace)))


def text(raw: Any, limit: int = _MESSAGE_CHARACTERS) -> str:
    """Short printable Unicode, whatever ``raw`` holds."""
    if type(raw) is not str:
        raise Forged("a text that is none")
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in raw[:limit])


def _frame(raw: Any) -> tuple[int, str]:
    if type(raw) is not list or len(raw) != 2:
        raise Forged("a trace of strange frames")
    return _line(raw[0]) or 1, text(raw[1], _NAME_CHARACTERS)


def _line(raw: Any) -> int | None:
    if raw is None or (type(raw) is int and 1 <= raw <= _MAX_LINE):
        return raw
    raise Forged("a line that is none")


def _number(raw: Any) -> float:
    if type(raw) not in (int, float) or not -MAX_ABS_REWARD <= raw <= MAX_ABS_REWARD:
        raise Forged("a reward that is no number in range")
    return float(raw)


def _components(raw: Any) -> dict[str, float]:
    if type(raw) is not dict or len(raw) > _MAX_COMPONENTS:
        raise Forged("components that are none")
    return {text(name, _NAME_CHARACTERS): _number(value) for name, value in raw.items()}
