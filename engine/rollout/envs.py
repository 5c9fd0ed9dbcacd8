"""Environments: what happens between two turns of an episode. One object per episode; it may keep state, and owns no clock.

An environment answers each sampled turn with a text for the model to read, or with None: the episode is over.
"""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from engine.environment_spec import Environment, Latency, SingleTurn, StandIn

Sleep = Callable[[float], Awaitable[None]]


class Env(Protocol):
    max_observation_tokens: int

    async def reply(self, text: str, *, turn: int, seed: int) -> str | None:
        """What the model reads after ``text``, its turn number ``turn`` (from 0), sampled with ``seed``; None ends the episode."""
        ...


def make_env(spec: Environment, *, sleep: Sleep) -> Env:
    """The environment of one episode."""
    if isinstance(spec, StandIn):
        return StandInEnv(spec, sleep=sleep)
    return SingleTurnEnv(spec)


class SingleTurnEnv:
    max_observation_tokens = 0

    def __init__(self, spec: SingleTurn):
        self._spec = spec

    async def reply(self, text: str, *, turn: int, seed: int) -> str | None:
        return None


class StandInEnv:
    """Waits as if for a tool and says the same each time."""

    def __init__(self, spec: StandIn, *, sleep: Sleep):
        self.max_observation_tokens = spec.max_observation_tokens
        self._spec, self._sleep = spec, sleep

    async def reply(self, text: str, *, turn: int, seed: int) -> str | None:
        if turn < self._spec.tool_turns:
            await self._sleep(wait_seconds(self._spec.latency, seed))
        return self._spec.observation if turn + 1 < self._spec.most_turns else None


def wait_seconds(latency: Latency, seed: int) -> float:
    """How long the stand-in for a tool takes after the turn of ``seed``."""
    return min(latency.cap_seconds, random.Random(seed).lognormvariate(math.log(latency.median_seconds), latency.sigma))
