"""An engine that SIGKILL ends at a named point, and one that goes on with what it left: ``python -m tests.engine.killed FOLDER``.

A real manager, store, rollout worker and trainer in one process; completions and their rewards are recorded: they follow from the seed
that each is sampled with. For each point one process is forked that runs the job and dies there, and then one that goes on with the
job; torch is loaded once. Prints how each of the first processes ended, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from engine.clock import SystemClock
from engine.ports import AdapterRef, Snapshot, TrainRequest, TrainResult
from engine.rewards.graders import GradeResult
from engine.rollout.sampling import Sampled, SampleParams
from engine.rollout.worker import RolloutWorker
from engine.spec import Grader, JobSpec
from tests.engine.world import MODEL, World

STEPS, PROMPTS, GROUP = 3, 2, 4
COMPLETIONS = PROMPTS * GROUP
JOB = "job_a"

Reached = Callable[[str], None]

# Point → when the first process dies there: in the middle of step 2, so that there is a past to lose. Version 0 is published like any.
POINTS = {
    "rollout:sampling": COMPLETIONS + 3,
    "reward:grading": COMPLETIONS + 3,
    "rollout:staged": 2,
    "rollout:renamed": 2,
    "train:asked": 2,
    "train:scored": 2,  # before the optimizer's step
    "train:stepped": 2,  # after it
    "commit:wrote:adapter_model.safetensors": 3,
    "commit:wrote:manifest.json": 3,
    "commit:synced": 3,
    "commit:staged": 3,
    "commit:renamed": 3,
    "commit:directory-synced": 3,
    "commit:head:staged": 3,
    "commit:head:renamed": 3,
    "commit:done": 3,
}


def dies_by_sigkill(point: str, nth: int) -> Reached:
    """SIGKILL for this process the ``nth`` time that ``point`` is reached: no handler, no ``finally``, no buffer flushed."""
    left = nth

    def reached(name: str) -> None:
        nonlocal left
        left -= name == point
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return reached


class RecordedSampler:
    """Every completion is a fixed function of the seed that it is asked with."""

    def __init__(self, reached: Reached, *, vocabulary: int):
        self.died = asyncio.Event()
        self._reached, self._vocabulary = reached, vocabulary

    async def load(self, ref: AdapterRef, files: Snapshot) -> AdapterRef:
        return ref

    async def unload(self, job: str, *, keep_version: int | None = None) -> None: ...

    async def sample(self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams) -> Sampled:
        self._reached("rollout:sampling")
        await asyncio.sleep(0)
        chance = random.Random(params.seed)
        ids = [chance.randrange(3, self._vocabulary) for _ in range(chance.randint(1, 8))]
        return Sampled(completion_ids=ids, logprobs=[-4.0 - chance.random() for _ in ids], finish_reason="stop", cached_tokens=0)

    def stats(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None: ...


class RecordedGrades:
    """Every reward is a fixed function of the text."""

    def __init__(self, reached: Reached):
        self._reached = reached

    async def grade(self, grader: Grader, text: str, item: Mapping[str, Any], **case: Any) -> GradeResult:
        self._reached("reward:grading")
        return GradeResult(reward=random.Random(text).random())


class LocalTrainer:
    """``ports.TrainPort`` over a ``TrainWorker`` in this process."""

    def __init__(self, worker: Any, reached: Reached = lambda name: None):
        self._worker, self._reached = worker, reached
        worker.model.scorer.register_forward_hook(lambda *_: reached("train:scored"))

    async def prepare(self, request: TrainRequest) -> None:
        self._reached("train:prepared")

    async def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        return self._worker.fresh(job, spec)

    async def step(self, request: TrainRequest) -> TrainResult:
        self._reached("train:asked")
        result = self._worker.step(request)
        self._reached("train:stepped")
        return result


def submission(world: World) -> dict[str, Any]:
    body = world.submission(steps=STEPS)
    sizes = {"prompts_per_step": PROMPTS, "group_size": GROUP, "max_prompt_tokens": 24, "max_new_tokens": 8}
    return {**body, "spec": {**body["spec"], "rollout": sizes, "train": {"steps": STEPS, "learning_rate": 1e-2}}}


async def run(root: Path, base: Path, reached: Reached) -> None:
    """Submit the job, or go on with it, and wait for its end."""
    from engine.rollout.tokens import ModelTokens
    from engine.train.worker import TrainWorker, join_ranks

    meeting = f"file://{root}-{os.getpid()}"
    join_ranks(backend="gloo", init_method=meeting, rank=0, world_size=1, timeout_seconds=60)
    root.mkdir(exist_ok=True)
    world = World(root)
    tokens = ModelTokens.load(base)
    world.rollout = RolloutWorker(
        sampler=RecordedSampler(reached, vocabulary=len(tokens._tokenizer)), tokens=tokens, grading=RecordedGrades(reached)
    )
    world.train = LocalTrainer(TrainWorker(base), reached)
    await world.open(crash_at=reached, model=MODEL, clock=SystemClock())
    await world.manager.submit(JOB, submission(world))
    await world.ended(JOB)
    await world.manager.stop()


def in_a_fork(root: Path, base: Path, reached: Reached) -> int:
    """How the process ended: its exit status, negative for a signal."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    try:
        asyncio.run(run(root, base, reached))
        os._exit(0)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def make_base(path: Path) -> None:
    from engine.models.make_tiny_math import build_model, build_tokenizer

    tokenizer = build_tokenizer()
    build_model(tokenizer, seed=3).save_pretrained(path)
    tokenizer.save_pretrained(path)


def main(folder: Path) -> None:
    import torch

    import engine.rollout.tokens
    import engine.train.worker  # noqa: F401  before the forks: it takes seconds

    torch.set_num_threads(1)
    make_base(folder / "base")
    ends: dict[str, list[int]] = {"undisturbed": [in_a_fork(folder / "undisturbed", folder / "base", lambda name: None)]}
    for point, nth in POINTS.items():
        root = folder / point.replace(":", "-")
        ends[point] = [in_a_fork(root, folder / "base", dies_by_sigkill(point, nth)), in_a_fork(root, folder / "base", lambda name: None)]
    print(json.dumps(ends))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
