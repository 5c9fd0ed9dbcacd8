"""Engines for tests: started as a product starts them, on ports and in folders of their own, driven from synchronous tests."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import audit
from engine import settings as engine_settings
from engine.blobs import BlobStore
from engine.client import EngineClient
from engine.follow import JobView
from engine.runtime import reaper, run_file
from engine.runtime.child import EngineChild
from engine.settings import EngineSettings
from engine.spec import Submission
from engine.workload import dataset_of
from tests.support.parts import parts

DEADLINE_SECONDS = 240.0


class TestEngine:
    """One engine process tree. ``run`` drives a coroutine on the engine's own loop."""

    __test__ = False

    def __init__(self, settings: EngineSettings, child: EngineChild, runner: asyncio.Runner):
        self.settings = settings
        self.child = child
        self._runner = runner
        self._runs = 0

    def run(self, work: Coroutine[Any, Any, Any], *, seconds: float = DEADLINE_SECONDS) -> Any:
        return self._runner.run(asyncio.wait_for(work, seconds))

    def client(self) -> EngineClient:
        return EngineClient(self.settings.engine_url, self.settings.secret())

    def processes(self, title: str) -> list[int]:
        """Ids of this engine's processes whose title begins with ``title``."""
        return parts(self.settings, title)

    def kill(self, title: str) -> int:
        (pid,) = self.processes(title)
        os.kill(pid, signal.SIGKILL)
        return pid

    def play(self, tasks: list[str], *, on_step: Callable[[JobView], None] = lambda view: None, **spec: Any) -> dict[str, JobView]:
        """Run one job per task to its end and return what its events told; ``on_step`` hears of every commit."""
        return self.run(self._play(tasks, on_step, spec))

    async def _play(self, tasks: list[str], on_step: Callable[[JobView], None], spec: dict[str, Any]) -> dict[str, JobView]:
        self._runs += 1
        async with self.client() as client:
            cursor = await client.last_offset()
            views = {}
            for number, task in enumerate(tasks):
                job = f"run{self._runs}-{task}-{number}"
                views[job] = JobView(job=job, tenant=f"tenant-{number}", task=task, steps=spec.get("steps", 3))
                await client.submit(job, self.submission(task, number, **spec))
            async for event in client.follow(views, after=cursor):
                views[event["job"]].take(event)
                if event["kind"] == "step":
                    on_step(views[event["job"]])
            return views

    def submission(
        self, task: str, number: int, *, steps: int = 3, learning_rate: float = 1e-3, prompts: int = 8, temperature: float = 1.0
    ) -> Submission:
        dataset = dataset_of(BlobStore(self.settings.blobs_dir), task, rows=96, seed=number)
        spec = {
            "base_model": self.settings.model,
            "dataset": dataset,
            "grader": {"type": "string_check"},
            "rollout": {
                "prompts_per_step": prompts,
                "group_size": 4,
                "max_prompt_tokens": 24,
                "max_new_tokens": 8,
                "temperature": temperature,
            },
            "lora": {"rank": 8, "alpha": 16},
            "train": {"steps": steps, "learning_rate": learning_rate},
            "seed": number,
        }
        return Submission(tenant=f"tenant-{number}", submitted_at=datetime.now(UTC), spec=spec)

    def violations(self) -> list[str]:
        """The engine's broken promises, by its journal and its disk."""
        return audit.audit(self.settings.engine_dir)

    async def until_healthy(self) -> dict[str, Any]:
        async with self.client() as client:
            while not (health := await client.health())["ok"]:
                await asyncio.sleep(0.05)
            return health


@contextmanager
def running_engine(
    state: Path, *, module: str = "engine", environment: dict[str, str] | None = None, **changes: Any
) -> Iterator[TestEngine]:
    """A healthy engine that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="mre-", dir="/tmp") as runtime, asyncio.Runner() as runner:
        url = f"http://127.0.0.1:{_free_port()}"
        device = os.environ.get("MARLAAS_TEST_DEVICE", "auto")  # deploy/gpu_check.sh names it
        values = {
            "engine_url": url,
            "device": device,
            "object_store_mb": 80,
            "job_slots": 4,
            "kv_gib": 0.25,
            "start_deadline_seconds": 110,
            **changes,
        }
        settings = engine_settings.load(state=state, runtime=Path(runtime), **values)
        settings.make_dirs()
        child = EngineChild(settings, module=module, **(environment or {}))
        runner.run(child.__aenter__())
        try:
            tag = run_file.read(settings)["tag"]
            yield TestEngine(settings, child, runner)
        finally:
            runner.run(child.stop())
        assert wait_until(lambda: reaper.tagged(tag) == []), f"the engine left processes {reaper.tagged(tag)}"


def wait_until(true: Callable[[], bool], *, seconds: float = 20.0) -> bool:
    """Whether ``true`` came about in time. For what only the kernel knows; nothing announces it."""
    give_up = time.monotonic() + seconds
    while not (happened := true()) and time.monotonic() < give_up:
        time.sleep(0.02)
    return happened


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
