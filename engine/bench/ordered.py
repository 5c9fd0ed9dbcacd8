"""How fast this machine could do a run's work in the order that on-policy training forces, were nothing to wait for a training.

``bound`` asks each device for its work alone, the sampler with every step of every job in one batch. No schedule can have that much in
flight: a job's next step is sampled under weights that its last one made. And two devices that share a memory slow one another down. Here
the jobs' steps follow one another, all jobs side by side, tools waited for, while the trainer does all trainings on its own core; neither
ever waits for the other, so this too is a time that no schedule undercuts, and one that explains what is left of the gap.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing as mp
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from engine.bench.parts import Say, in_child
from engine.bench.replay import SILENCE_SECONDS, play, start_trainer, warm_sampler
from engine.bench.requests import EpisodeAsked, JobAsked
from engine.bench.sampler import BenchSampler
from engine.ports import AdapterRef, TrainRequest
from engine.settings import EngineSettings

GATE_SECONDS = 300.0


@dataclass(frozen=True, kw_only=True)
class Half:
    """One device's part of ``jobs``, which begins once both wait at the ``gate`` (a ``multiprocessing.Barrier`` of two)."""

    jobs: list[JobAsked]
    gate: Any


def measure_ordered(settings: EngineSettings, jobs: Sequence[JobAsked], *, on_stage: Say) -> float:
    """Seconds. Takes as long, and starts a sampler and a trainer. Raises ``parts.PartFailed``."""
    on_stage("replaying both devices' work side by side…")
    gate = mp.get_context("spawn").Barrier(2, timeout=GATE_SECONDS)
    sampling = Half(jobs=[replace(job, trainings=[]) for job in jobs], gate=gate)
    training = Half(jobs=[replace(job, steps=[[] for _ in job.steps]) for job in jobs], gate=gate)
    named = {"seconds": SILENCE_SECONDS, "on_stage": lambda stage: None}
    with ThreadPoolExecutor(2) as threads:
        halves = [
            threads.submit(in_child, ordered_sampling, settings, sampling, cores=settings.rollout_core_ids, **named),
            threads.submit(in_child, ordered_training, settings, training, cores=settings.train_core_ids, **named),
        ]
        return max(half.result() for half in halves)


# In the children


def ordered_sampling(settings: EngineSettings, half: Half, say: Say) -> float:
    return asyncio.run(_ordered_sampling(settings, half))


async def _ordered_sampling(settings: EngineSettings, half: Half) -> float:
    sampler, refs = await warm_sampler(settings, half.jobs)
    await asyncio.to_thread(half.gate.wait)
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for ref, job in zip(refs, half.jobs, strict=True):
            tasks.create_task(one_after_another(ref, job.steps, sampler))
    seconds = time.monotonic() - began
    await sampler.close()
    return seconds


async def one_after_another(ref: AdapterRef, steps: list[list[EpisodeAsked]], sampler: BenchSampler) -> None:
    for step in steps:
        await play([(ref, step)], sampler, tools=True)


def ordered_training(settings: EngineSettings, half: Half, say: Say) -> float:
    trainer = start_trainer(settings)
    trainer.step(half.jobs[0].trainings[0])
    half.gate.wait()
    began = time.monotonic()
    for request in all_trainings(half.jobs):
        trainer.step(request)
    return time.monotonic() - began


def all_trainings(jobs: Sequence[JobAsked]) -> list[TrainRequest]:
    """As many as there are steps: the few that were kept of each job stand for all of its steps, in turn."""
    return [request for job in jobs for request in itertools.islice(itertools.cycle(job.trainings), len(job.steps))]
