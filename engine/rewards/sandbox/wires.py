"""Messages between the engine and its reward-runner: frames of JSON, both ends ours."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Any

from engine.rewards.sandbox.frames import HEAD, encode
from engine.rewards.sandbox.replies import graded
from engine.rewards.sandbox.verdicts import (
    AssertTest,
    CallTest,
    CodeTest,
    Failed,
    Graded,
    NotApplicable,
    Ran,
    StdinTest,
    TestOutcome,
    Verdict,
)

MAX_FRAME_BYTES = 2**30
_TESTS: dict[str, type] = {"stdin": StdinTest, "call": CallTest, "assert": AssertTest}


async def read(reader: asyncio.StreamReader) -> dict[str, Any]:
    """The next message; raises ``asyncio.IncompleteReadError`` at the end."""
    (size,) = HEAD.unpack(await reader.readexactly(HEAD.size))
    return json.loads(await reader.readexactly(size))


async def write(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(encode(message))
    await writer.drain()


def verdict_out(verdict: Verdict) -> Any:
    """A bare number for a bare reward: most are, and there are many."""
    if type(verdict) is Graded:
        return [verdict.reward, dict(verdict.components)] if verdict.components else verdict.reward
    return asdict(verdict) if isinstance(verdict, Failed) else None


def verdict_in(raw: Any) -> Verdict:
    if type(raw) is float:
        return graded(raw)
    if isinstance(raw, list):
        return Graded(reward=raw[0], components=raw[1])
    return NotApplicable() if raw is None else failed_in(raw)


def failed_in(raw: dict[str, Any]) -> Failed:
    return Failed(**{**raw, "trace": tuple((line, name) for line, name in raw["trace"])})


def outcome_in(raw: dict[str, Any]) -> TestOutcome:
    return TestOutcome(**{**raw, "error": failed_in(raw["error"]) if raw["error"] else None})


def ran_in(raw: dict[str, Any]) -> Ran:
    return Ran(**{**raw, "error": failed_in(raw["error"]) if raw["error"] else None})


def test_out(test: CodeTest) -> dict[str, Any]:
    kind = next(name for name, kind in _TESTS.items() if type(test) is kind)
    return {"type": kind, **asdict(test)}


def test_in(raw: dict[str, Any]) -> CodeTest:
    fields = {name: value for name, value in raw.items() if name != "type"}
    if raw["type"] == "call":
        fields["args"] = tuple(fields["args"])
    return _TESTS[raw["type"]](**fields)
