"""``bound_s``, measured: a run's own work done again by the real sampler and the real trainer, with no schedule between them.

**Rollout device.** Every request of every job and step (the same prompts, each sampled for exactly as many tokens as in the run, under its
job's adapter) goes to one sampler at once: vLLM's batch is full from beginning to end. Turns of an episode follow one another, tools are
not waited for. No policy version has to be waited for either, which is what makes this a bound.
**Trainer.** Steps of each job, one after another on the trainer's core; a few of each are timed and count for all of it.
**Longest job.** The job whose steps wait longest for their tools, alone in the sampler, tools waited for in real time; a few steps are
timed, and what they take beyond their slowest episode's tools is added to the tools of all of its steps, with one training each.

Both parts run on the cores that they have in the engine, and one after the other, so neither disturbs the other's figure.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.bench.bound import Bound, path_seconds, train_seconds
from engine.bench.parts import Say, in_child
from engine.bench.requests import EpisodeAsked, JobAsked, spread
from engine.bench.sampler import BenchSampler
from engine.ports import AdapterRef, TrainRequest
from engine.settings import EngineSettings

PATH_STEPS = 3
SILENCE_SECONDS = 900.0


@dataclass(frozen=True, kw_only=True)
class SamplerOrder:
    """``longest``: the index of the job whose path is timed, step by step of ``path_steps``."""

    jobs: list[JobAsked]
    longest: int
    path_steps: list[int]


@dataclass(frozen=True, kw_only=True)
class SamplerTimes:
    """Seconds; ``path``: of single steps by index."""

    saturated: float
    path: dict[int, float]


def measure_bound(settings: EngineSettings, jobs: Sequence[JobAsked], *, on_stage: Say) -> Bound:
    """Takes about as long as the bound itself, and starts a sampler and a trainer. Raises ``parts.PartFailed``."""
    longest = max(range(len(jobs)), key=lambda index: (sum(jobs[index].tools), jobs[index].requests))
    alone = [replace(job, trainings=[]) for job in jobs]
    order = SamplerOrder(jobs=alone, longest=longest, path_steps=spread(len(jobs[longest].steps), PATH_STEPS))
    named = {"seconds": SILENCE_SECONDS, "on_stage": on_stage}
    sampled = in_child(replay_sampling, settings, order, cores=settings.rollout_core_ids, **named)
    trained = in_child(replay_training, settings, [job.trainings for job in jobs], cores=settings.train_core_ids, **named)
    work = [train_seconds(times, len(job.steps)) for times, job in zip(trained, jobs, strict=True)]
    own = work[longest] / len(jobs[longest].steps)
    return Bound(rollout_s=sampled.saturated, train_s=sum(work), path_s=path_seconds(jobs[longest].tools, sampled.path, own))


# In the children


def replay_sampling(settings: EngineSettings, order: SamplerOrder, say: Say) -> SamplerTimes:
    return asyncio.run(_replay_sampling(settings, order, say))


async def _replay_sampling(settings: EngineSettings, order: SamplerOrder, say: Say) -> SamplerTimes:
    say("starting a sampler for the replay…")
    sampler, refs = await warm_sampler(settings, order.jobs)
    say(f"replaying {sum(job.requests for job in order.jobs)} requests in one saturated batch…")
    steps = max(len(job.steps) for job in order.jobs)
    pairs = list(zip(refs, order.jobs, strict=True))
    everything = [(ref, job.steps[step]) for step in range(steps) for ref, job in pairs if step < len(job.steps)]
    saturated = await play(everything, sampler, tools=False)
    path, job = {}, order.jobs[order.longest]
    for step in order.path_steps:
        say(f"replaying the longest job alone, step {step + 1}…")
        path[step] = await play([(refs[order.longest], job.steps[step])], sampler, tools=True)
    await sampler.close()
    return SamplerTimes(saturated=saturated, path=path)


async def warm_sampler(settings: EngineSettings, jobs: Sequence[JobAsked]) -> tuple[BenchSampler, list[AdapterRef]]:
    """A sampler that serves every job's adapter and has sampled each one's first step."""
    sampler = await BenchSampler.start(settings)
    refs = [await sampler.serve(job.job, job.adapter, load_id=number + 1) for number, job in enumerate(jobs)]
    await play([(ref, job.steps[0]) for ref, job in zip(refs, jobs, strict=True)], sampler, tools=False)
    return sampler, refs


async def play(batches: list[tuple[AdapterRef, list[EpisodeAsked]]], sampler: BenchSampler, *, tools: bool) -> float:
    """Seconds until all episodes of all batches, begun at once, are over."""
    began = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for ref, episodes in batches:
            for episode in episodes:
                tasks.create_task(_episode(ref, episode, sampler, tools))
    return time.monotonic() - began


async def _episode(ref: AdapterRef, episode: EpisodeAsked, sampler: BenchSampler, tools: bool) -> None:
    for turn in episode:
        await sampler.draw(ref, turn.prompt_ids, turn.new_tokens, seed=random.getrandbits(62))
        if tools and turn.tool_seconds:
            await asyncio.sleep(turn.tool_seconds)


def replay_training(settings: EngineSettings, trainings: list[list[TrainRequest]], say: Say) -> list[list[float]]:
    """Seconds of each training, by job."""
    say("starting a trainer for the replay…")
    trainer = start_trainer(settings)
    for requests in trainings[:1]:
        trainer.step(requests[0])
    say(f"replaying {sum(map(len, trainings))} trainings…")
    return [[_seconds(trainer, request) for request in requests] for requests in trainings]


def _seconds(trainer: Any, request: TrainRequest) -> float:
    began = time.monotonic()
    trainer.step(request)
    return time.monotonic() - began


def start_trainer(settings: EngineSettings) -> Any:
    """A trainer of one rank in this process."""
    import socket

    from engine.train.worker import TrainWorker

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
    return TrainWorker.start(settings, rank=0, world_size=1, init_method=address)
