"""A small engine for tests: a real manager, store and journal in a temporary folder; fake sampler, trainer and clock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from engine.blobs import BlobStore
from engine.core.policy import Policy, regime
from engine.driver import Deadlines
from engine.manager import Manager
from engine.ports import Snapshot
from engine.sim.fakes import FakeRolloutPort, FakeTrainPort, Script
from engine.spec import JobSpec, ModelInfo

START = datetime(2026, 1, 1, tzinfo=UTC)
MODEL = ModelInfo(
    name="tiny",
    max_context_tokens=128,
    max_rank=16,
    target_modules=("q_proj", "v_proj"),
    kv_bytes_per_token=1,
    kv_budget_bytes=10_000,
    job_slots=4,
)


class TickingClock:
    """Each look costs a millisecond, so that durations are positive and the same in every run."""

    def __init__(self, began: datetime = START):
        self._began = began
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 0.001
        return self._seconds

    def utc(self) -> datetime:
        return self._began + timedelta(seconds=self._seconds)


class GatedTrainPort(FakeTrainPort):
    """Version 0 can be held at a gate too."""

    async def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        for gate in self.script.gates_of("fresh", job, 0):
            await gate.wait()
        return await super().fresh(job, spec)


class World:
    """``await world.open()`` starts a manager on what lies in ``root``; opening again is a restart."""

    def __init__(self, root: Path):
        self.root = root
        self.script = Script()
        self.rollout = FakeRolloutPort(self.script)
        self.train = GatedTrainPort(self.script)
        self.blobs = BlobStore(root / "blobs")
        self.train_rows = self.blobs.put(rows(0, 20))
        self.eval_rows = self.blobs.put(rows(20, 24))
        (root / "tokenizer.json").write_text("{}")
        self.managers: list[Manager] = []

    @property
    def manager(self) -> Manager:
        return self.managers[-1]

    async def open(self, **changes: Any) -> Manager:
        settings = {
            "root": self.root / "engine",
            "blobs": self.blobs,
            "model": MODEL,
            "tokenizer": self.root / "tokenizer.json",
            "policy": policy(),
            "rollout": self.rollout,
            "train": self.train,
            "clock": TickingClock(START + timedelta(hours=len(self.managers))),
            "deadlines": Deadlines(rollout=30, train=30, fresh=30, evaluate=30, control=30, stats=30),
        }
        self.managers.append(Manager(**{**settings, **changes}))
        await self.manager.start()
        return self.manager

    def submission(
        self, *, tenant: str = "ten_a", steps: int = 2, with_eval: bool = False, eval_every: int = 0, **changes: Any
    ) -> dict[str, Any]:
        dataset = {"version": "d1", "train": self.train_rows.model_dump(), "train_rows": 20}
        if with_eval:
            dataset |= {"eval": self.eval_rows.model_dump(), "eval_rows": 4}
        spec = {
            "base_model": "tiny",
            "dataset": dataset,
            "grader": {"type": "string_check"},
            "rollout": {"prompts_per_step": 4, "group_size": 2, "max_prompt_tokens": 8, "max_new_tokens": 8},
            "lora": {"rank": 4, "target_modules": ["q_proj"]},
            "train": {"steps": steps},
            "eval": {"every": eval_every},
        }
        return {"tenant": tenant, "submitted_at": (START - timedelta(seconds=10)).isoformat(), "spec": spec, **changes}

    async def submit(self, job: str, **changes: Any) -> None:
        await self.manager.submit(job, self.submission(**changes))

    async def ended(self, *jobs: str) -> dict[str, dict[str, Any]]:
        """The data of each job's ``ended`` event, once all have one."""
        return {job: (await self.seen(job, "ended"))["data"] for job in jobs}

    async def seen(self, job: str, kind: str, *, times: int = 1) -> dict[str, Any]:
        """The job's event of this kind, once it has come so many times. Fails by the clock of the wall only when nothing more happens."""
        after, left = 0, times
        while True:
            answer = await self.manager.events(after, 20, 1000)
            assert answer["events"], f"no {kind} of {job}; it has {self.kinds(job)}"
            for event in answer["events"]:
                left -= (event["job"], event["kind"]) == (job, kind)
                if left == 0:
                    return event
            after = answer["last"]

    async def until(self, true: Callable[[], bool]) -> None:
        """Let everything else run until ``true()``."""
        async with asyncio.timeout(50):
            while not true():
                await asyncio.sleep(0)

    async def called(self, call: str, job: str, *, times: int = 1) -> None:
        """Until a port has been called so many times for ``job``."""
        await self.until(lambda: len(self.script.made(call, job)) >= times)

    def events(self, job: str, kind: str | None = None) -> list[Any]:
        return [event for event in self.manager._journal.replay() if event.job == job and kind in (None, event.kind)]

    def kinds(self, job: str) -> list[str]:
        return [event.kind for event in self.events(job)]


def policy(**changes: Any) -> Policy:
    return regime("marlaas", slots=4, kv_budget_bytes=10_000, **changes)


def rows(first: int, end: int) -> bytes:
    lines = [
        {"row": row, "messages": [{"role": "user", "content": f"{row}+1="}], "item": {"answer": str(row + 1)}} for row in range(first, end)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)
