"""Environments: what happens between two turns of an episode. One object per episode, which may keep state.

An environment answers each sampled turn with a text for the model to read, or with nothing: the episode is over.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from engine.environment_spec import CALL_END, CALL_START, RESULT, Environment, Latency, SingleTurn, StandIn, Tools
from engine.rollout.tools import BROKEN, TIMEOUT, TOO_MANY_CALLS, UNKNOWN_TOOL, Call, Tool, ToolFailed, find_call
from engine.rollout.tools_calculator import calculator
from engine.rollout.tools_python import Programs, python_tool
from engine.rollout.tools_search import Searches
from engine.trajectory import ToolCall

logger = logging.getLogger(__name__)

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]

MAX_ANSWER_CHARACTERS = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """One turn of the model's: its number from 0, its text, how it ended ("stop" or "length"), and the seed it was sampled with."""

    turn: int
    text: str
    finish_reason: str
    seed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """``observation``: what the model reads next, None when the episode is over. ``finish_reason``: why, if not as the turn itself."""

    observation: str | None = None
    call: ToolCall | None = None
    finish_reason: str | None = None


OVER = Reply()


class Env(Protocol):
    """``stop``: strings that end a turn. ``frame``: what stands around each observation."""

    stop: tuple[str, ...]
    frame: tuple[str, str]
    max_observation_tokens: int

    async def reply(self, said: Said) -> Reply: ...


def make_env(spec: Environment, *, tools: Mapping[str, Tool], clock: Clock, sleep: Sleep) -> Env:
    """The environment of one episode. ``tools``: of ``open_tools``."""
    if isinstance(spec, Tools):
        return ToolLoop(spec, tools=tools, clock=clock)
    if isinstance(spec, StandIn):
        return StandInEnv(spec, sleep=sleep)
    return SingleTurnEnv(spec)


async def open_tools(spec: Environment, searches: Searches, programs: Programs | None = None) -> dict[str, Tool]:
    """The tools of one job, by name. Raises ``PortError`` for a corpus that cannot be had."""
    if not isinstance(spec, Tools):
        return {}
    tools: dict[str, Tool] = {"calculator": calculator, "python": python_tool(programs, call_seconds=spec.call_seconds)}
    if "search" in spec.tools:
        tools["search"] = await searches.tool(spec.search)
    return {name: tools[name] for name in spec.tools}


class SingleTurnEnv:
    stop: tuple[str, ...] = ()
    frame = ("", "")
    max_observation_tokens = 0

    def __init__(self, spec: SingleTurn):
        self._spec = spec

    async def reply(self, said: Said) -> Reply:
        return OVER


class StandInEnv:
    """Waits as if for a tool and says the same each time."""

    stop: tuple[str, ...] = ()
    frame = ("", "")

    def __init__(self, spec: StandIn, *, sleep: Sleep):
        self.max_observation_tokens = spec.max_observation_tokens
        self._spec, self._sleep = spec, sleep

    async def reply(self, said: Said) -> Reply:
        if said.turn < self._spec.tool_turns:
            await self._sleep(wait_seconds(self._spec.latency, said.seed))
        return Reply(observation=self._spec.observation) if said.turn + 1 < self._spec.most_turns else OVER


def wait_seconds(latency: Latency, seed: int) -> float:
    """How long the stand-in for a tool takes after the turn of ``seed``."""
    return min(latency.cap_seconds, random.Random(seed).lognormvariate(math.log(latency.median_seconds), latency.sigma))


class ToolLoop:
    """Calls what the model calls, until it says something without a call or a limit ends the episode.

    A call beyond a limit is refused once, so that the model can answer with what it has; the next one ends the episode.
    """

    stop = (CALL_END,)
    frame = RESULT

    def __init__(self, spec: Tools, *, tools: Mapping[str, Tool], clock: Clock):
        self.max_observation_tokens = spec.max_observation_tokens
        self._spec, self._tools, self._clock = spec, tools, clock
        self._calls, self._seconds, self._refused = 0, 0.0, False

    async def reply(self, said: Said) -> Reply:
        if CALL_START not in said.text or (said.finish_reason == "length" and CALL_END not in said.text):
            return OVER
        if self._refused or said.turn + 1 >= self._spec.most_turns:
            limit = self._exhausted()
            return Reply(call=_unanswered(said.text, TIMEOUT if limit == "seconds" else TOO_MANY_CALLS), finish_reason=limit)
        call = await self._call(said.text)
        return Reply(observation=call.answer, call=call)

    def _exhausted(self) -> str:
        """The limit that ends the episode."""
        if self._calls >= self._spec.max_calls:
            return "calls"
        return "seconds" if self._seconds >= self._spec.max_seconds else "turns"

    async def _call(self, text: str) -> ToolCall:
        """Read and make the call in ``text``; whatever goes wrong is in the answer."""
        call, started_at = Call(tool="", argument=""), self._clock()
        self._calls += 1
        try:
            call, error = find_call(text) or call, None
            answer = await self._answer(call)
        except ToolFailed as failure:
            answer, error = f"error: {failure.message}", failure.kind
        seconds = self._clock() - started_at
        self._seconds += seconds
        return ToolCall(tool=call.tool, argument=call.argument, answer=answer[:MAX_ANSWER_CHARACTERS], seconds=seconds, error=error)

    async def _answer(self, call: Call) -> str:
        if call.tool not in self._tools:
            raise ToolFailed(UNKNOWN_TOOL, f"there is no tool {call.tool}; there is {', '.join(self._tools)}")
        if self._calls > self._spec.max_calls:
            self._refused = True
            raise ToolFailed(TOO_MANY_CALLS, "no calls are left; give your answer")
        seconds = min(self._spec.call_seconds, self._spec.max_seconds - self._seconds)
        if seconds <= 0:
            self._refused = True
            raise ToolFailed(TIMEOUT, "no time is left for tools; give your answer")
        try:
            async with asyncio.timeout(seconds):
                return await self._tools[call.tool](call.argument)
        except TimeoutError:
            raise ToolFailed(TIMEOUT, f"{call.tool} gave no answer in time") from None
        except ToolFailed:
            raise
        except Exception:  # a tool's fault is the model's observation, never the batch's end
            logger.exception("the tool %s broke", call.tool)
            raise ToolFailed(BROKEN, f"{call.tool} failed") from None


def _unanswered(text: str, error: str) -> ToolCall:
    """A call that nobody would read the answer of."""
    try:
        call = find_call(text)
    except ToolFailed:
        call = None
    named = call or Call(tool="", argument="")
    return ToolCall(tool=named.tool, argument=named.argument, answer="", seconds=0.0, error=error)
