"""The bench's workloads as jobs to predict: the same specifications, without a store of datasets or an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from engine.bench.loads import WORKLOADS, Load
from engine.models import tasks
from engine.sim.predict import Planned
from engine.sim.profile import MeasuredLengths
from engine.spec import parse_job

# Where ``tasks`` makes its rows from, nothing is read from the dataset: only its name is part of a specification.
NO_DATASET = {"version": "predicted", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 1}
CHARACTER_MODEL = "tiny-math"


def planned(workload: str, count: int) -> list[Planned]:
    """``count`` jobs of the workload's loads in turn, as ``bench.loads.bench_jobs`` makes them. Raises ``KeyError`` for an unknown name."""
    loads = WORKLOADS[workload]
    return [_planned(loads[number % len(loads)], number) for number in range(count)]


def _planned(load: Load, number: int) -> Planned:
    rows = load.prompts_per_step * load.steps
    spec = parse_job(load.spec({**NO_DATASET, "train_rows": rows}, seed=number))
    return Planned(kind=load.name, spec=spec, lengths=_lengths(load))


def _lengths(load: Load) -> MeasuredLengths | None:
    """Of the bundled model a token is a character, so that prompts and observations need no tokenizer. Turns are as long as they may be."""
    if load.model != CHARACTER_MODEL:
        return None
    prompts = [len(row["prompt"]) for row in tasks.rows(load.task, count=64, seed=0)]
    observed = len(load.tools.observation) if load.tools else 0
    return MeasuredLengths(prompt_tokens=fmean(prompts), turn_tokens_mean=load.new_tokens, observation_tokens=observed)


def with_sampled(jobs: Sequence[Planned], measured: Mapping[str, Mapping[str, Any]]) -> list[Planned]:
    """``jobs`` whose free turns are as long as they were on average in ``measured``, the bench's figures by regime.

    A length is a fact of the model and the task, not of the machine or the schedule. Unchanged where nothing was sampled.
    """
    whole = [run for run in measured.values() if run.get("tokens_sampled") and run.get("measured_share") == 1.0]
    free = [job for job in jobs if not job.spec.rollout.ignore_eos]
    if not whole or not free:
        return list(jobs)
    limited = sum(_turns(job) * job.spec.rollout.max_new_tokens for job in jobs if job.spec.rollout.ignore_eos)
    mean = (fmean(run["tokens_sampled"] for run in whole) - limited) / sum(map(_turns, free))
    return [job if job.spec.rollout.ignore_eos else _as_long(job, mean) for job in jobs]


def _turns(job: Planned) -> int:
    """Requests of the sampler over the whole job."""
    rollout = job.spec.rollout
    return job.spec.train.steps * rollout.prompts_per_step * rollout.group_size * job.spec.environment.most_turns


def _as_long(job: Planned, mean: float) -> Planned:
    known = job.lengths or MeasuredLengths(prompt_tokens=job.spec.rollout.max_prompt_tokens, turn_tokens_mean=1.0)
    return replace(job, lengths=known.model_copy(update={"turn_tokens_mean": mean}))
