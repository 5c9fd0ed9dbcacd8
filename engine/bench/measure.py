"""The same work under one regime after another on one running engine.

The engine is started once. Between runs only its scheduling policy is changed (PATCH /policy); jobs, seeds and datasets are the same in
every run, the order of the regimes is shuffled anew in each round, and a short warm-up with the same jobs is not counted.

``single-collocated`` is emulated: one job at a time, and rollout and training exclude each other, as on one set of devices whose switching
costs nothing. Each phase keeps the one core that it has in the other regimes; a system that gave the idle core to the running phase would
gain what a second core gives it. Strictly on-policy training of a single job never overlaps its own rollout, so here it must come out as
``single-disaggregated`` does: the pair shows the spread of the measurement as much as anything else.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from engine.bench.bound import Bound
from engine.bench.loads import BenchJob
from engine.bench.memory import memory_bytes
from engine.bench.ordered import measure_ordered
from engine.bench.parts import PartFailed
from engine.bench.progress import Screen
from engine.bench.replay import measure_bound
from engine.bench.requests import JobAsked, asked
from engine.bench.run import Run
from engine.bench.session import Session, session
from engine.core.policy import REGIMES
from engine.runtime import run_file
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings

# ``no-async`` is ``multi-lora-sync`` under another name, so "all" runs it once and gives it twice.
TWIN, TWIN_OF = "no-async", "multi-lora-sync"
ALL = tuple(name for name in REGIMES if name != TWIN)
WARM_UP_STEPS = 2
TRAININGS_PER_JOB = 3


@dataclass(kw_only=True)
class Measured:
    """``runs``: by regime, one a round. ``bound`` is None where it was not asked for or could not be measured; ``notes`` say why."""

    runs: dict[str, list[Run]]
    bound: Bound | None = None
    memory: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def succeeded(self) -> bool:
        """No job failed; those that a cut cancelled are no failures."""
        return all(view.state in ("succeeded", "cancelled") for runs in self.runs.values() for run in runs for view in run.jobs)


async def measure(
    settings: EngineSettings,
    jobs: list[BenchJob],
    *,
    regimes: Sequence[str],
    rounds: int,
    seed: int,
    cut_seconds: float | None,
    with_bound: bool,
    screen: Screen,
) -> Measured:
    """Raises ``StartFailed`` when the engine does not start."""
    found = Measured(runs={name: [] for name in regimes})
    work: list[JobAsked] = []
    async with session(settings, on_stage=screen.stage) as engine:
        with screen.shown(1 + rounds * len(regimes)):
            await _warm_up(engine, jobs, screen)
            for regime, title in _order(regimes, rounds, seed):
                run = await _play(engine, jobs, regime, title, cut_seconds, screen)
                found.runs[regime].append(run)
                found.notes += [f"{title}: {why}" for why in failures(run)]
                if with_bound and not work and run.succeeded:
                    work = asked(run, jobs, settings.engine_dir / "jobs", trainings=TRAININGS_PER_JOB)
                await engine.forget(run)
        found.memory = memory_bytes(run_file.processes(settings))
    if with_bound:
        _add_bound(found, settings, work, screen)
    return found


def failures(run: Run) -> list[str]:
    """Why jobs failed, each reason once. Those that a cut cancelled have not failed."""
    return list(dict.fromkeys(f"a job failed: {view.ending.get('reason', '')}" for view in run.jobs if view.state == "failed"))


def _order(regimes: Sequence[str], rounds: int, seed: int) -> list[tuple[str, str]]:
    """(regime, title) of each run."""
    order = []
    for number in range(rounds):
        shuffled = random.Random(f"{seed}/{number}").sample(list(regimes), len(regimes))
        order += [(name, name if rounds == 1 else f"{name}, round {number + 1}") for name in shuffled]
    return order


async def _warm_up(engine: Session, jobs: list[BenchJob], screen: Screen) -> None:
    short = [BenchJob(kind=job.kind, spec={**job.spec, "train": {**job.spec["train"], "steps": WARM_UP_STEPS}}) for job in jobs]
    run = await _play(engine, short, "marlaas", "warm-up (not counted)", None, screen)
    await engine.forget(run)
    for view in run.jobs:
        if view.state != "succeeded":
            raise StartFailed(f"the warm-up's job {view.job} {view.state}: {view.ending.get('reason', '')}")


async def _play(engine: Session, jobs: list[BenchJob], regime: str, title: str, cut_seconds: float | None, screen: Screen) -> Run:
    await engine.set_regime(regime)
    with screen.run(title, sum(job.steps for job in jobs)) as show:
        run = await engine.play(jobs, regime=regime, cut_seconds=cut_seconds, on_event=show)
        show(run)
    return run


def _add_bound(found: Measured, settings: EngineSettings, work: list[JobAsked], screen: Screen) -> None:
    if not work:
        found.notes.append("No regime ran to its end, so the bound was not measured.")
        return
    try:
        bound = measure_bound(settings, work, on_stage=screen.stage)
        found.bound = replace(bound, ordered_s=measure_ordered(settings, work, on_stage=screen.stage))
    except PartFailed as error:
        found.notes.append(f"The bound could not be measured: {error}")


def meta(found: Measured, *, workload: str, jobs: list[BenchJob], settings: EngineSettings, seed: int) -> dict[str, Any]:
    """What belongs to the whole measurement, not to a regime."""
    bound = found.bound
    kinds = [job.kind for job in jobs]
    return {
        "workload": workload,
        "jobs": len(jobs),
        "kinds": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)},
        "steps_per_job": max((job.steps for job in jobs), default=0),
        "model": settings.model,
        "seed": seed,
        "bound": None if bound is None else {**asdict(bound), "binding": bound.binding},
        "memory_mb": {name: round(size / 1e6) for name, size in found.memory.items()},
        "notes": found.notes,
    }
