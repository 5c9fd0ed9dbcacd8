"""How fast the scheduler decides, and how long a simulation takes, on this machine: ``python -m engine.sim speed``.

Each fact is timed on its own, so the driver's own work is left out. Time is that of this process on its core, so that busy neighbours do
not count. Sizes are measured in turn and several times, and the median counts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time
from typing import Any

from engine.core import messages as m
from engine.core.policy import Policy, regime
from engine.core.scheduler import Scheduler
from engine.sim.driver import Simulation
from engine.sim.paper import SCALES, WORKLOADS
from engine.sim.workload import replicas

Work = m.StartRollout | m.StartTrain
Clock = Callable[[], float]

POLICIES: dict[str, Callable[[int], Policy]] = {
    "all admitted": lambda jobs: Policy(max_active=jobs),
    "32 slots, fair": lambda jobs: Policy(max_active=32, admission_order="fair"),
    "barrier": lambda jobs: Policy(max_active=jobs, barrier=True),
}
SMALL = 100


def measure(
    jobs: int,
    *,
    decisions: int,
    rounds: int = 3,
    clock: Clock = process_time,
    simulate_seconds: Callable[[str], float] | None = None,
) -> dict[str, Any]:
    """``microseconds_per_decision``: of the slowest policy with ``jobs`` open jobs, over the facts of their steps, and
    ``microseconds_per_submission`` likewise over their submissions; ``flatness``: the worst ratio to 100 open jobs.
    """
    sizes = sorted({min(SMALL, jobs), min(1000, jobs), jobs})
    timings = {name: _by_size(make, sizes, decisions=decisions, rounds=rounds, clock=clock) for name, make in POLICIES.items()}
    steps = {name: {str(size): timing[1] for size, timing in by_size.items()} for name, by_size in timings.items()}
    return {
        "microseconds_per_decision": max(by_size[str(jobs)] for by_size in steps.values()),
        "microseconds_per_submission": max(by_size[jobs][0] for by_size in timings.values()),
        "jobs": jobs,
        "flatness": round(max(by_size[str(jobs)] / by_size[str(sizes[0])] for by_size in steps.values()), 2),
        "by_policy": steps,
        "simulation_32x100_seconds": {
            name: round((simulate_seconds or simulation_seconds)(name), 3) for name in ("gsm8k", "search", "mixed")
        },
    }


def _by_size(
    make: Callable[[int], Policy], sizes: Sequence[int], *, decisions: int, rounds: int, clock: Clock
) -> dict[int, tuple[float, float]]:
    taken: dict[int, list[tuple[float, float]]] = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in sizes:
            taken[size].append(microseconds(size, make(size), decisions=decisions, clock=clock))
    return {size: tuple(round(median(part), 2) for part in zip(*pairs, strict=True)) for size, pairs in taken.items()}


def microseconds(jobs: int, policy: Policy, *, decisions: int, clock: Clock = process_time) -> tuple[float, float]:
    """Mean time of one ``handle``: over ``jobs`` submissions, and over ``decisions`` facts of steps while all these jobs are open."""
    scheduler = Scheduler(policy)
    todo: list[Work] = []
    gc.collect()
    submitting = sum(_timed(scheduler, _submission(number, jobs), todo, clock) for number in range(jobs))
    stepping = sum(_timed(scheduler, _answer(todo, jobs + number), todo, clock) for number in range(decisions))
    return 1e6 * submitting / jobs, 1e6 * stepping / decisions


def _timed(scheduler: Scheduler, fact: m.Fact, todo: list[Work], clock: Clock) -> float:
    start = clock()
    commands = scheduler.handle(fact)
    spent = clock() - start
    todo += [c for c in commands if isinstance(c, Work)]
    return spent


def _submission(number: int, jobs: int) -> m.Submitted:
    return m.Submitted(at=float(number), job=f"job{number}", tenant=f"tenant{number % max(1, jobs // 10)}", steps=10**9, kv_bytes=1)


def _answer(todo: list[Work], count: int) -> m.Fact:
    """Answer an outstanding command; swapped from the middle, so that answers come in no particular order."""
    todo[-1], todo[count % len(todo)] = todo[count % len(todo)], todo[-1]
    command = todo.pop()
    kind = m.RolloutDone if isinstance(command, m.StartRollout) else m.TrainDone
    return kind(at=float(count), job=command.job, version=command.version, attempt=command.attempt)


def simulation_seconds(workload: str, *, jobs: int = 32, steps: int = 100, clock: Clock = process_time) -> float:
    speeds = SCALES["Qwen3-14B"].disaggregated()
    simulation = Simulation(regime("marlaas", slots=jobs), replicas(WORKLOADS[workload], jobs=jobs, steps=steps), speeds)
    start = clock()
    simulation.run()
    return clock() - start


def text(result: dict[str, Any]) -> str:
    """For people."""
    rows = [
        f"{name:<16}" + "".join(f"{jobs:>8} jobs {value:6.2f} µs" for jobs, value in by_size.items())
        for name, by_size in result["by_policy"].items()
    ]
    seconds = ", ".join(f"{value} s ({name})" for name, value in result["simulation_32x100_seconds"].items())
    return "\n".join([*rows, f"32 jobs of 100 steps simulated in {seconds}"])
