"""Runs code that a model wrote, and judges it from outside. Each program, and each set of calls, has fresh processes that end with it.

What is expected stays on this side: the process of the code sees inputs only, so nothing it says can be a verdict. Asserts run in a
process of their own, which calls the code across this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.rewards.sandbox import replies
from engine.rewards.sandbox.endings import ORPHANED, ending
from engine.rewards.sandbox.frames import Forged, encode
from engine.rewards.sandbox.inside.values import pack, unpack
from engine.rewards.sandbox.nursery import CannotSpawn
from engine.rewards.sandbox.slots import Slots
from engine.rewards.sandbox.verdicts import HARD_GRACE_SECONDS, AssertTest, CallTest, CodeTest, Failed, Ran, StdinTest, TestOutcome
from engine.rewards.sandbox.worker import Late, Lost, Worker

_PROGRAM_OUTPUT_BYTES = 2**20
_MAX_DEFINED = 1000
_MAX_VALUE_BYTES = 2**20
_SHOWN_CHARACTERS = 200
_UNAVAILABLE = "the sandbox could not start a process: "


class _Stopped(Exception):
    """The code, or a test, ended without an answer."""

    def __init__(self, failed: Failed):
        super().__init__(failed)
        self.failed = failed


class CodeRunner:
    def __init__(self, slots: Slots):
        self._slots = slots

    async def run(self, code: str, tests: Sequence[CodeTest], *, seconds: float) -> list[TestOutcome]:
        """One outcome per test, in order. Never raises on any code or test."""
        return [await self._one(code, test, seconds) for test in tests]

    async def program(self, code: str, *, seconds: float) -> Ran:
        """What ``code`` prints. Never raises on any code."""
        try:
            async with _Process(self._slots) as process:
                told = await process.run_to_end({"op": "program", "source": code, "stdin": "", "echo": True, "seconds": seconds}, seconds)
                output, dropped_bytes = process.worker.take_output()
        except CannotSpawn as error:
            return Ran(text="", error=Failed(kind="unavailable", message=f"{_UNAVAILABLE}{error}"))
        return Ran(text=output.decode("utf-8", "replace"), dropped_bytes=dropped_bytes, error=told)

    async def _one(self, code: str, test: CodeTest, seconds: float) -> TestOutcome:
        try:
            if isinstance(test, StdinTest):
                return await self._program(code, test, seconds)
            if isinstance(test, CallTest):
                return await self._call(code, test, seconds)
            return await self._asserts(code, test, seconds)
        except _Stopped as stopped:
            return TestOutcome(passed=False, message=stopped.failed.message, error=stopped.failed)
        except CannotSpawn as error:
            message = f"{_UNAVAILABLE}{error}"
            return TestOutcome(passed=False, message=message, error=Failed(kind="unavailable", message=message))

    async def _program(self, code: str, test: StdinTest, seconds: float) -> TestOutcome:
        async with _Process(self._slots) as process:
            process.worker.keep_output_bytes = _PROGRAM_OUTPUT_BYTES
            told = await process.run_to_end({"op": "program", "source": code, "stdin": test.stdin, "seconds": seconds}, seconds)
            output, dropped_bytes = process.worker.take_output()
        if told:
            raise _Stopped(told)
        if dropped_bytes:
            raise _Stopped(Failed(kind="too_large", message=f"it printed more than {_PROGRAM_OUTPUT_BYTES} bytes"))
        text = output.decode("utf-8", "replace")
        if _lines(text) == _lines(test.stdout):
            return TestOutcome(passed=True)
        return TestOutcome(passed=False, message=f"expected {_shown(test.stdout)}, printed {_shown(text)}")

    async def _call(self, code: str, test: CallTest, seconds: float) -> TestOutcome:
        async with _Process(self._slots) as process:
            await process.define(code, seconds)
            reply = await process.call(test.function, *_arguments(test), seconds)
        if isinstance(reply, Failed):
            raise _Stopped(reply)
        value = _plain(reply)
        if _same(value, test.expected):
            return TestOutcome(passed=True)
        return TestOutcome(passed=False, message=f"expected {_shown(test.expected)}, got {_shown(value)}")

    async def _asserts(self, code: str, test: AssertTest, seconds: float) -> TestOutcome:
        async with _Process(self._slots) as solution, _Process(self._slots) as judge:
            defined = await solution.define(code, seconds)
            request = {"op": "judge", "source": test.source, "defined": defined, "seconds": seconds}
            deadline = asyncio.get_running_loop().time() + seconds + HARD_GRACE_SECONDS
            while True:
                reply = await judge.ask(request, deadline - asyncio.get_running_loop().time())
                if "call" not in reply:
                    break
                request = await _forward(solution, reply, seconds)
        if "error" in reply:
            failed = _failed(reply)
            wrong = failed.message.startswith("AssertionError")
            return TestOutcome(passed=False, message=failed.message, error=None if wrong else failed)
        if reply != {"passed": True}:
            raise _Stopped(Failed(kind="protocol", message="the tests' process answered with what was not asked"))
        return TestOutcome(passed=True)


class _Process:
    """A fresh worker that ends with the block."""

    def __init__(self, slots: Slots):
        self._slots = slots

    async def __aenter__(self) -> _Process:
        self.worker: Worker = await self._slots.take()
        self.worker.max_reply_bytes = _MAX_VALUE_BYTES
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.worker.kill()
        finally:
            self._slots.give_back()

    async def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """One reply to one request; raises ``_Stopped``."""
        answer: dict[str, Any] = {}
        try:
            await self.worker.exchange(encode(request), answer.update, seconds=seconds)
        except Late:
            line = await self.worker.hanging_line()
            raise _Stopped(Failed(kind="hard_timeout", message="killed: it could not be interrupted", line=line)) from None
        except Lost as error:
            raise _Stopped(self._crash(error)) from None
        except Forged as error:
            raise _Stopped(Failed(kind="protocol", message=f"wrote to the reply channel itself: {error}")) from None
        return answer

    async def define(self, code: str, seconds: float) -> list[str]:
        """Load ``code``; the names that it says it defines."""
        reply = await self.ask({"op": "define", "source": code, "seconds": seconds}, seconds + HARD_GRACE_SECONDS)
        if "error" in reply:
            raise _Stopped(_failed(reply))
        names = reply.get("defined")
        if type(names) is not list or len(names) > _MAX_DEFINED or not all(type(name) is str for name in names):
            raise _Stopped(Failed(kind="protocol", message="wrote to the reply channel itself: names that are none"))
        return names

    async def call(self, function: str, args: Any, kwargs: Any, seconds: float) -> Any:
        """The tagged value that the code answers, or ``Failed`` where the code raised."""
        request = {"op": "call", "function": function, "args": args, "kwargs": kwargs, "seconds": seconds}
        reply = await self.ask(request, seconds + HARD_GRACE_SECONDS)
        if "error" in reply:
            return _failed(reply)
        if "value" not in reply:
            raise _Stopped(Failed(kind="protocol", message="wrote to the reply channel itself: neither value nor error"))
        return reply["value"]

    async def run_to_end(self, request: dict[str, Any], seconds: float) -> Failed | None:
        """Run a program until its process ends; None when that was with status 0."""
        told: dict[str, Any] = {}
        try:
            await self.worker.exchange(encode(request), lambda reply: told.update(reply) or b"", seconds=seconds + HARD_GRACE_SECONDS)
        except Late:
            line = await self.worker.hanging_line()
            return Failed(kind="hard_timeout", message="killed: it could not be interrupted", line=line)
        except Forged as error:
            return Failed(kind="protocol", message=f"wrote to the reply channel itself: {error}")
        except Lost as error:
            if error.status == 0:
                return None
            try:
                return replies.failed(told["error"]) if "error" in told else self._crash(error)
            except Forged:
                return self._crash(error)
        return None

    def _crash(self, error: Lost) -> Failed:
        if error.status == ORPHANED:
            return Failed(kind="unavailable", message="the sandbox was ended from outside; try again")
        return Failed(kind="crash", message=ending(error.status), line=self.worker.last_line())


async def _forward(solution: _Process, reply: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Call the code for its tests; what it answers, as the next message to them."""
    if type(reply["call"]) is not str:
        raise _Stopped(Failed(kind="protocol", message="the tests' process called what is no name"))
    value = await solution.call(reply["call"], reply.get("args"), reply.get("kwargs"), seconds)
    return {"error": {"message": value.message}} if isinstance(value, Failed) else {"value": value}


def _failed(reply: dict[str, Any]) -> Failed:
    try:
        return replies.failed(reply["error"])
    except Forged as error:
        raise _Stopped(Failed(kind="protocol", message=f"wrote to the reply channel itself: {error}")) from None


def _arguments(test: CallTest) -> tuple[Any, Any]:
    try:
        return pack(list(test.args)), pack(dict(test.kwargs))
    except (TypeError, ValueError) as error:
        raise _Stopped(Failed(kind="bad_value", message=f"the test's arguments: {error}")) from error


def _plain(tagged: Any) -> Any:
    try:
        return unpack(tagged)
    except (TypeError, ValueError, KeyError, RecursionError, OverflowError) as error:
        raise _Stopped(Failed(kind="protocol", message="wrote to the reply channel itself: a value that is none")) from error


def _same(value: Any, expected: Any) -> bool:
    """Equality as JSON sees it: tuples are lists, and True is not 1."""
    if isinstance(value, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(value) == len(expected) and all(map(_same, value, expected))
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(_same(value[key], expected[key]) for key in value)
    if isinstance(value, bool) or isinstance(expected, bool):
        return value is expected
    return value == expected


def _lines(text: str) -> list[str]:
    return "\n".join(line.rstrip() for line in text.splitlines()).rstrip("\n").split("\n")


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        return "a value too large to show"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
