"""``python -m engine.bench profile --json F``: this machine's speeds, measured through the engine's real parts, for the simulator.

1. One job alone on the real engine: what its hand-overs take (from its events), and real trainings and an adapter to measure with. And a
   short agentic one: how long the model's turns are.
2. The trainer by itself on the core it has in the engine: those trainings, and synthetic steps of several sizes.
3. The sampler by itself on its core: batches of 1 to 640 requests under 1 to 10 adapters, each with few and with many new tokens; prompts
   of two lengths; loads of an adapter.
4. Both at once: how much each slows the other.

``engine.sim.profile`` says what each number means, ``bench.speeds`` how it follows from the timings. Three to five minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

from engine import settings as engine_settings
from engine.bench.handovers import COMMIT, TO_NEXT, TO_SAMPLER, handovers
from engine.bench.loads import AGENTIC, REASONING, SLOW_AGENTIC, BenchJob, job_of
from engine.bench.output import put_json
from engine.bench.parts import Say, in_child
from engine.bench.progress import Screen
from engine.bench.replay import start_trainer
from engine.bench.requests import JobAsked, asked
from engine.bench.run import Run, spans
from engine.bench.sampler import BenchSampler
from engine.bench.session import Session, session
from engine.bench.speeds import Timed, decode_points, fitted, prefill_rate, request_costs, slowdown, split_by
from engine.blobs import BlobStore
from engine.models import registry
from engine.ports import AdapterRef, Snapshot, TrainRequest
from engine.rollout.worker import sequences_at_once
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings
from engine.sim.profile import MachineProfile, MeasuredLengths, as_json, write
from engine.trajectory import RolloutBatch, decode, encode

ADAPTERS = (1, 2, 4, 8, 10)
SEQUENCES = (1, 8, 32, 64, 128, 256, 512, 640)
FEW_TOKENS, PROMPT_TOKENS = 8, 8
PREFILLS, SHORT_PROMPT, LONG_PROMPT = 64, 40, 200
REPEATS, TRAIN_REPEATS, LOADS = 3, 5, 8
# A batch that takes long is no more exact for being repeated.
REPEAT_SECONDS = 2.5
STEPS, AGENTIC_STEPS = 12, 2
# Completions of a synthetic step, and tokens of each.
TRAIN_SIZES = ((32, 12), (64, 4), (64, 24), (64, 64), (128, 24))
BESIDE_SECONDS = 25.0
SAMPLER_START_SECONDS = 20.0
KV_GIB = 1.0
SILENCE_SECONDS = 600.0


def main(arguments: Sequence[str]) -> int:
    cli = argparse.ArgumentParser(
        prog="python -m engine.bench profile", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--json", type=Path, help="where to write the profile; default: bench/profile.json in the state folder")
    options = cli.parse_args(arguments)
    settings = engine_settings.load(model=REASONING.model, job_slots=max(ADAPTERS), kv_gib=KV_GIB)
    settings.make_dirs()
    path = options.json or settings.state / "bench" / "profile.json"
    profile = measure_profile(settings, Screen())
    write(path.resolve(), profile)
    put_json(as_json(profile), None)
    return 0


def measure_profile(settings: EngineSettings, screen: Screen) -> MachineProfile:
    """Raises ``StartFailed`` and ``parts.PartFailed``."""
    run, job, agentic, model = asyncio.run(_alone(settings, screen))
    named = {"seconds": SILENCE_SECONDS, "on_stage": screen.stage}
    trained = in_child(profile_training, settings, job.trainings, cores=settings.train_core_ids, **named)
    order = SamplerOrder(adapter=job.adapter, tokens=_plain_tokens(job))
    sampled = in_child(profile_sampling, settings, order, cores=settings.rollout_core_ids, **named)
    sampling, training = _beside(settings, order, job.trainings[-1], screen)
    lengths = {REASONING.name: lengths_of(job), AGENTIC.name: lengths_of(agentic), SLOW_AGENTIC.name: lengths_of(agentic)}
    return assembled(run, model, lengths, trained, sampled, sampling, training)


def assembled(
    run: Run,
    model: dict[str, Any],
    lengths: dict[str, MeasuredLengths],
    trained: TrainerTimes,
    sampled: SamplerTimes,
    sampling: float,
    training: float,
) -> MachineProfile:
    """``sampling``, ``training``: how much each is slowed by the other."""
    prefill = prefill_rate(*sampled.prefills)
    request = request_costs(sampled.batches, prefill)
    train = fitted([float(tokens) for tokens, _ in trained.sizes], [seconds for _, seconds in trained.sizes])
    return MachineProfile(
        machine=f"{platform.machine()}, {platform.node()}",
        model=model["name"],
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        decode=tuple(decode_points(sampled.batches)),
        max_sequences=sampled.max_sequences,
        kv_capacity_tokens=model["kv_budget_bytes"] // model["kv_bytes_per_token"],
        prefill_tokens_per_second=prefill,
        seconds_per_request=request.slope,
        seconds_per_request_batch=request.fixed,
        adapter_load_seconds=median(sampled.loads),
        train_fixed_seconds=train.fixed,
        train_seconds_per_token=train.slope,
        sampling_slowdown=sampling,
        training_slowdown=training,
        lengths=lengths,
        notes="What a rollout's call takes beyond its sampler was measured as a whole; half of it stands in rollout_start_seconds, half in "
        "batch_ready_seconds.",
        **overheads(run, trained_alone=fmean(trained.real)),
    )


def overheads(run: Run, *, trained_alone: float) -> dict[str, float]:
    """What a job alone loses between its phases; ``trained_alone``: seconds of its training without the engine around it."""
    (view,) = run.jobs
    lines = handovers(run)
    around = lines[TO_SAMPLER]["mean_s"]
    trains = [end - start for start, end in spans(view, "train")]
    first_rollout = min(start for start, _ in spans(view, "rollout"))
    submitted = run.submitted[view.job]
    return {
        "rollout_start_seconds": lines.get(TO_NEXT, {"mean_s": 0.0})["mean_s"] + around / 2,
        "batch_ready_seconds": around / 2,
        "train_start_seconds": max(0.0, median(trains) - trained_alone),
        "commit_seconds": lines[COMMIT]["mean_s"],
        "grade_seconds": fmean(data["rollout"]["reward_seconds"] or 0.0 for data in view.committed),
        "job_start_seconds": max(0.0, first_rollout - submitted),
        "job_end_seconds": max(0.0, submitted + view.ending["completion_seconds"] - run.last_commit),
    }


def lengths_of(job: JobAsked) -> MeasuredLengths:
    """How long prompts, turns and observations of ``job`` were."""
    episodes = [episode for step in job.steps for episode in step]
    turns = [turn.new_tokens for episode in episodes for turn in episode]
    observed = [
        len(after.prompt_ids) - len(before.prompt_ids) - before.new_tokens for episode in episodes for before, after in pairwise(episode)
    ]
    return MeasuredLengths(
        prompt_tokens=fmean(len(episode[0].prompt_ids) for episode in episodes),
        turn_tokens_mean=fmean(turns),
        turn_tokens_std=pstdev(turns),
        observation_tokens=fmean(observed) if observed else 0.0,
    )


async def _alone(settings: EngineSettings, screen: Screen) -> tuple[Run, JobAsked, JobAsked, dict[str, Any]]:
    """One job alone on the engine, which a first one has warmed up, and what it and an agentic one asked."""
    blobs = BlobStore(settings.blobs_dir)
    async with session(settings, on_stage=screen.stage) as engine:
        model = await engine.client.model()
        await engine.set_regime("marlaas")
        with screen.shown(3):
            await _play(engine, job_of(replace(REASONING, steps=STEPS), blobs, 0), "warm-up (not counted)", screen)
            run, job = await _play(engine, job_of(replace(REASONING, steps=STEPS), blobs, 1), "one job alone", screen)
            _, agentic = await _play(engine, job_of(replace(AGENTIC, steps=AGENTIC_STEPS), blobs, 1), "one agentic job", screen)
    return run, job, agentic, model


async def _play(engine: Session, job: BenchJob, title: str, screen: Screen) -> tuple[Run, JobAsked]:
    """Raises ``StartFailed`` when the job does not succeed."""
    with screen.run(title, job.steps) as show:
        run = await engine.play([job], regime="marlaas", on_event=show)
    if not run.succeeded:
        raise StartFailed(f"{title}: {run.jobs[0].ending.get('reason', '')}")
    (work,) = asked(run, [job], engine.settings.engine_dir / "jobs", trainings=TRAIN_REPEATS)
    await engine.forget(run)
    return run, work


def _plain_tokens(job: JobAsked) -> list[int]:
    """Ids that the model knows as ordinary text: what its prompts are made of."""
    return sorted({token for step in job.steps for episode in step for token in episode[0].prompt_ids})


# The trainer


@dataclass(frozen=True, kw_only=True)
class TrainerTimes:
    """``real``: seconds of the job's own trainings; ``sizes``: (tokens through the model, seconds) of synthetic ones."""

    real: list[float]
    sizes: list[tuple[int, float]]


def profile_training(settings: EngineSettings, trainings: list[TrainRequest], say: Say) -> TrainerTimes:
    say("starting a trainer…")
    trainer = start_trainer(settings)
    trainer.step(trainings[0])
    say("timing trainings…")
    real = [_seconds(trainer, request) for request in trainings]
    sizes = []
    for completions, tokens in TRAIN_SIZES:
        request = synthetic(trainings[0], completions, tokens)
        trainer.step(request)
        times = [_seconds(trainer, request) for _ in range(TRAIN_REPEATS)]
        sizes.append((_tokens(request), median(times)))
    return TrainerTimes(real=real, sizes=sizes)


def synthetic(request: TrainRequest, completions: int, tokens: int) -> TrainRequest:
    """``request`` with a batch of ``completions`` that have ``tokens`` sampled tokens each, and rewards that differ within each group."""
    batch = decode(request.batch)
    examples = batch.trajectories
    made = []
    for number in range(completions):
        one = examples[number % len(examples)]
        ids = [one.completion_ids[place % len(one.completion_ids)] for place in range(tokens)]
        group, sample = divmod(number, batch.group_size)
        fields = {"row": group, "sample": sample, "completion_ids": ids, "logprobs": [-1.0] * tokens, "reward": float(sample % 2)}
        made.append(_with(one, **fields))
    whole = RolloutBatch(
        job=batch.job, policy_version=batch.policy_version, attempt=batch.attempt, group_size=batch.group_size, trajectories=made
    )
    return replace(request, batch=encode(whole))


def _with(one: Any, **fields: Any) -> Any:
    from msgspec.structs import replace as changed

    return changed(one, **fields)


def _tokens(request: TrainRequest) -> int:
    return sum(len(one.prompt_ids) + len(one.completion_ids) for one in decode(request.batch).trajectories)


def _seconds(trainer: Any, request: TrainRequest) -> float:
    began = time.monotonic()
    trainer.step(request)
    return time.monotonic() - began


# The sampler


@dataclass(frozen=True, kw_only=True)
class SamplerOrder:
    """``tokens``: ids to make prompts of."""

    adapter: Snapshot
    tokens: list[int]
    until: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SamplerTimes:
    batches: list[Timed]
    prefills: tuple[Timed, Timed]
    loads: list[float]
    max_sequences: int


def profile_sampling(settings: EngineSettings, order: SamplerOrder, say: Say) -> SamplerTimes:
    return asyncio.run(_profile_sampling(settings, order, say))


async def _profile_sampling(settings: EngineSettings, order: SamplerOrder, say: Say) -> SamplerTimes:
    say("starting a sampler…")
    bench = _Batches(await BenchSampler.start(settings), order.tokens)
    loads = await bench.loads(order.adapter)
    await bench.time(refs=1, sequences=64, prompt_tokens=PROMPT_TOKENS, new_tokens=FEW_TOKENS)
    batches = []
    for sequences in SEQUENCES:
        for adapters in [count for count in ADAPTERS if count <= sequences]:
            say(f"timing batches of {sequences} requests under {adapters} adapters…")
            for tokens in (FEW_TOKENS, FEW_TOKENS + _more_tokens(sequences)):
                batches.append(await bench.timed(refs=adapters, sequences=sequences, prompt_tokens=PROMPT_TOKENS, new_tokens=tokens))
    say("timing prompts…")
    prefills = [await bench.timed(refs=1, sequences=PREFILLS, prompt_tokens=size, new_tokens=1) for size in (SHORT_PROMPT, LONG_PROMPT)]
    await bench.sampler.close()
    return SamplerTimes(batches=batches, prefills=tuple(prefills), loads=loads, max_sequences=sequences_at_once(_vocabulary(settings)))


def _vocabulary(settings: EngineSettings) -> int:
    files = registry.resolve(settings.model, settings.models_dir)
    return int(json.loads((files.path / "config.json").read_text())["vocab_size"])


def _more_tokens(sequences: int) -> int:
    """Enough for a slope, and for about a second on a processor."""
    return 128 if sequences <= 8 else 64 if sequences <= 64 else 24


class _Batches:
    """Batches of random prompts, so that none is in the sampler's prefix cache; the same ones each time."""

    def __init__(self, sampler: BenchSampler, tokens: list[int]):
        self.sampler = sampler
        self._tokens = tokens
        self._chance = random.Random(0)
        self._refs: list[AdapterRef] = []

    async def loads(self, adapter: Snapshot) -> list[float]:
        """Load as many adapters as are wanted; seconds of each load but the first, which also proves the names."""
        seconds = []
        for number in range(max(*ADAPTERS, LOADS)):
            began = time.monotonic()
            self._refs.append(await self.sampler.serve(f"bench-{number}", adapter, load_id=number + 1))
            seconds.append(time.monotonic() - began)
        return seconds[1:]

    async def timed(self, *, refs: int, sequences: int, prompt_tokens: int, new_tokens: int) -> Timed:
        sizes = {"sequences": sequences, "prompt_tokens": prompt_tokens, "new_tokens": new_tokens}
        times: list[float] = []
        while len(times) < REPEATS and sum(times) < REPEAT_SECONDS:
            times.append(await self.time(refs=refs, **sizes))
        return Timed(adapters=refs, seconds=tuple(times), **sizes)

    async def time(self, *, refs: int, sequences: int, prompt_tokens: int, new_tokens: int) -> float:
        prompts = [self._chance.choices(self._tokens, k=prompt_tokens) for _ in range(sequences)]
        began = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number, prompt in enumerate(prompts):
                tasks.create_task(self.sampler.draw(self._refs[number % refs], prompt, new_tokens, seed=number))
        return time.monotonic() - began


# Both at once


def _beside(settings: EngineSettings, order: SamplerOrder, training: TrainRequest, screen: Screen) -> tuple[float, float]:
    """(how much longer sampling takes while a training runs, how much longer a training takes while the sampler works).

    Both start together and work on; the trainer stops first. The trainer is up long before the sampler, so each has a time of its own.
    """
    screen.stage("timing the sampler and the trainer beside each other…")
    stop = time.time() + SAMPLER_START_SECONDS + BESIDE_SECONDS
    named = {"seconds": SILENCE_SECONDS, "on_stage": lambda stage: None}
    with ThreadPoolExecutor(2) as threads:
        sampler_order = replace(order, until=stop + BESIDE_SECONDS / 2)
        sampler = threads.submit(in_child, steady_sampling, settings, sampler_order, cores=settings.rollout_core_ids, **named)
        trainer = threads.submit(in_child, steady_training, settings, (training, stop), cores=settings.train_core_ids, **named)
        sampled, trained = sampler.result(), trainer.result()
    return slowdown(*split_by(sampled, trained)), slowdown(*split_by(trained, sampled))


def steady_sampling(settings: EngineSettings, order: SamplerOrder, say: Say) -> list[tuple[float, float]]:
    """(begin, end) of one batch after another until ``order.until``."""
    return asyncio.run(_steady_sampling(settings, order))


async def _steady_sampling(settings: EngineSettings, order: SamplerOrder) -> list[tuple[float, float]]:
    bench = _Batches(await BenchSampler.start(settings), order.tokens)
    await bench.loads(order.adapter)
    found = []
    while (began := time.time()) < order.until:
        await bench.time(refs=4, sequences=64, prompt_tokens=PROMPT_TOKENS, new_tokens=24)
        found.append((began, time.time()))
    await bench.sampler.close()
    return found


def steady_training(settings: EngineSettings, order: tuple[TrainRequest, float], say: Say) -> list[tuple[float, float]]:
    """(begin, end) of the same training again and again until a moment."""
    request, until = order
    trainer = start_trainer(settings)
    trainer.step(request)
    found = []
    while (began := time.time()) < until:
        trainer.step(request)
        found.append((began, time.time()))
    return found
