"""``python -m tests.engine.runtime.fake_engine serve``: the real engine in every part but its sampler and its trainer, which are fakes.

Starts in a few seconds. The variables ``FAKE_SAMPLER_SECONDS`` and ``FAKE_STEP_SECONDS`` slow the two down, ``FAKE_LOAD_SECONDS`` each
start of the sampler. Neither starts while the file that ``FAKE_GATE`` names is there.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from engine import settings
from engine.runtime.launcher import serve
from engine.runtime.names import Factories
from engine.sim.fakes import FakeRolloutPort, FakeTrainPort


class FakeSampler(FakeRolloutPort):
    @classmethod
    async def start(cls, settings: Any) -> FakeSampler:
        await asyncio.to_thread(_wait_at_gate)
        await asyncio.sleep(float(os.environ.get("FAKE_LOAD_SECONDS", "0")))
        sampler = cls()
        sampler.died = asyncio.Event()
        sampler.seconds = float(os.environ.get("FAKE_SAMPLER_SECONDS", "0"))
        return sampler

    async def rollout(self, request: Any) -> Any:
        await asyncio.sleep(self.seconds)
        return await super().rollout(request)


class FakeTrainer:
    @classmethod
    def start(cls, settings: Any, *, rank: int, world_size: int, init_method: str) -> FakeTrainer:
        _wait_at_gate()
        return cls()

    def __init__(self) -> None:
        self.port = FakeTrainPort()
        self.seconds = float(os.environ.get("FAKE_STEP_SECONDS", "0"))

    def fresh(self, job: str, spec: Any) -> Any:
        return asyncio.run(self.port.fresh(job, spec))

    def step(self, request: Any) -> Any:
        time.sleep(self.seconds)
        return asyncio.run(self.port.step(request))


def _wait_at_gate() -> None:
    gate = os.environ.get("FAKE_GATE")
    while gate and Path(gate).exists():
        time.sleep(0.02)


if __name__ == "__main__":
    module = "tests.engine.runtime.fake_engine"
    sys.exit(serve(settings.load(), factories=Factories(rollout=f"{module}:FakeSampler", train=f"{module}:FakeTrainer")))
