"""How long jobs will take on a measured machine, regime by regime: ``python -m engine.sim predict``.

The jobs are ``JobSpec``s, as the bench submits them; the machine is a ``MachineProfile``. The figures have the bench's names and meanings,
so that both stand side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.core.policy import regime
from engine.environment_spec import StandIn
from engine.sim.distributions import CappedLogNormal
from engine.sim.driver import Simulation
from engine.sim.layout import grid
from engine.sim.measured import MeasuredSpeeds
from engine.sim.profile import MachineProfile, MeasuredLengths, WaitDistribution
from engine.sim.workload import SimJob, StepShape
from engine.spec import JobSpec

LEAST_SLOTS = 8  # as the bench starts its engine
WITHIN = 0.20


@dataclass(frozen=True, kw_only=True)
class Planned:
    """A job to come. ``kind``: the load's name. ``lengths``: what is known of it, where the profile knows nothing better."""

    kind: str
    spec: JobSpec
    lengths: MeasuredLengths | None = None


def predict(profile: MachineProfile, jobs: Sequence[Planned], *, regimes: Sequence[str], seed: int = 0) -> dict[str, dict[str, Any]]:
    """By regime, in seconds: ``wall_s`` (first submission to last commit), ``ttfs_s`` by job, ``tpts_s``, ``completion_s``, busy shares."""
    return {name: _predicted(profile, jobs, name, seed) for name in regimes}


def _predicted(profile: MachineProfile, jobs: Sequence[Planned], name: str, seed: int) -> dict[str, Any]:
    policy = regime(name, slots=max(len(jobs), LEAST_SLOTS))
    work = [_job(profile, planned, number, seed) for number, planned in enumerate(jobs)]
    simulation = Simulation(policy, work, MeasuredSpeeds(profile, collocated=policy.collocated))
    report = simulation.run()
    histories = simulation.history.values()
    return {
        "wall_s": round(max(history.commits[-1] for history in histories), 3),
        "steps_per_hour": round(report.steps_per_hour, 1),
        "ttfs_s": [round(history.commits[0], 3) for history in histories],
        "tpts_s": round(report.tpts_seconds, 3),
        "completion_s": round(report.completion_seconds, 3),
        "rollout_busy": round(report.rollout_busy, 4),
        "train_busy": round(report.train_busy, 4),
    }


def compare(predicted: Mapping[str, Mapping[str, Any]], measured: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """``predicted`` with the measured wall beside it, for the regimes that both have; ``error``: predicted over measured, less one."""
    found: dict[str, dict[str, Any]] = {}
    for name, figures in predicted.items():
        found[name] = dict(figures)
        wall = measured.get(name, {}).get("wall_s")
        if wall:
            error = figures["wall_s"] / wall - 1
            found[name] |= {"measured_wall_s": wall, "error": round(error, 4), "within_20_percent": abs(error) <= WITHIN}
    return found


def prediction_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a regime, for people."""
    rows = [
        [
            name,
            f"{row['wall_s']:.1f}",
            f"{row['steps_per_hour']:.0f}",
            f"{row['rollout_busy']:.0%}",
            f"{row['train_busy']:.0%}",
            *_beside(row),
        ]
        for name, row in found.items()
    ]
    return grid("Predicted", ["regime", "wall s", "steps/h", "rollout", "train", "measured s", "error"], rows)


def _beside(row: Mapping[str, Any]) -> list[str]:
    return [f"{row['measured_wall_s']:.1f}", f"{row['error']:+.0%}"] if "error" in row else ["", ""]


def _job(profile: MachineProfile, planned: Planned, number: int, seed: int) -> SimJob:
    return SimJob(
        job=f"{planned.kind}-{number:04d}",
        tenant=f"tenant{number}",
        steps=planned.spec.train.steps,
        shape=shape_of(planned.spec, profile.lengths.get(planned.kind, planned.lengths), profile.tool_wait),
        seed=seed,
    )


def shape_of(spec: JobSpec, lengths: MeasuredLengths | None = None, tool_wait: WaitDistribution | None = None) -> StepShape:
    """A step of ``spec``. Without measured ``lengths`` prompts and turns are as long as they may be.

    No prefix is taken to be cached: the bench's prompts are shorter than a block of the cache.
    Raises ``ValueError`` for an environment whose answers no profile describes.
    """
    rollout, environment = spec.rollout, spec.environment
    waits, turns, observed, last_waits = None, 1, 0.0, False
    if isinstance(environment, StandIn):
        waits = _wait(tool_wait or environment.latency)
        turns = environment.tool_turns + environment.answer_turn
        observed = lengths.observation_tokens if lengths else min(len(environment.observation), environment.max_observation_tokens)
        last_waits = not environment.answer_turn
    elif environment.type != "single_turn":
        raise ValueError(f"environment {environment.type}: its latency is not part of a profile")
    return StepShape(
        prompts_per_step=rollout.prompts_per_step,
        group_size=rollout.group_size,
        prompt_tokens=round(lengths.prompt_tokens) if lengths else rollout.max_prompt_tokens,
        new_tokens=_turn_tokens(rollout.max_new_tokens, None if rollout.ignore_eos else lengths),
        max_new_tokens=float(rollout.max_new_tokens * turns),
        call_shares=(*[0.0] * (turns - 1), 1.0),
        tool_wait=waits,
        tool_tokens=round(observed),
        final_wait=waits if last_waits else None,
        prefix_cached=False,
    )


def _turn_tokens(most: int, lengths: MeasuredLengths | None) -> CappedLogNormal:
    if lengths is None:
        return CappedLogNormal(median=float(most), sigma=0.0)
    sigma = math.sqrt(math.log1p((lengths.turn_tokens_std / lengths.turn_tokens_mean) ** 2))
    return CappedLogNormal(median=lengths.turn_tokens_mean / math.exp(sigma**2 / 2), sigma=sigma, cap=float(most))


def _wait(of: Any) -> CappedLogNormal:
    return CappedLogNormal(median=of.median_seconds, sigma=of.sigma, cap=of.cap_seconds)
