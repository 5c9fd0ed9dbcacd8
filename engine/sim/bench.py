"""``python -m engine.sim.bench``: how fast the scheduler decides, and how long a simulation takes, on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from time import perf_counter

from engine.core import messages as m
from engine.core.policy import Policy, regime
from engine.core.scheduler import Scheduler
from engine.sim.driver import Simulation
from engine.sim.workload import workload

Work = m.StartRollout | m.StartTrain


def microseconds_per_decision(jobs: int, policy: Policy, *, decisions: int, clock: Callable[[], float] = perf_counter) -> float:
    """Mean time of one ``handle`` while ``jobs`` jobs are open: submissions, then their steps. The driver's own time is not counted."""
    scheduler = Scheduler(policy)
    todo: list[Work] = []
    spent = 0.0
    for count in range(max(decisions, jobs)):
        fact = _submission(count, jobs) if count < jobs else _answer(todo, count)
        start = clock()
        commands = scheduler.handle(fact)
        spent += clock() - start
        todo += [c for c in commands if isinstance(c, Work)]
    return 1e6 * spent / max(decisions, jobs)


def _submission(number: int, jobs: int) -> m.Submitted:
    return m.Submitted(at=float(number), job=f"job{number}", tenant=f"tenant{number % max(1, jobs // 10)}", steps=10**9, kv_bytes=1)


def _answer(todo: list[Work], count: int) -> m.Fact:
    """Answer an outstanding command; swapped from the middle, so that answers come in no particular order."""
    todo[-1], todo[count % len(todo)] = todo[count % len(todo)], todo[-1]
    command = todo.pop()
    kind = m.RolloutDone if isinstance(command, m.StartRollout) else m.TrainDone
    return kind(at=float(count), job=command.job, version=command.version, attempt=command.attempt)


def simulation_seconds(jobs: int, steps: int, *, clock: Callable[[], float] = perf_counter) -> float:
    simulation = Simulation(regime("marlaas", slots=jobs), workload("mixed", jobs=jobs, steps=steps), contention=0.1)
    start = clock()
    simulation.run()
    return clock() - start


def measure(sizes: Sequence[int], decisions: int) -> dict[str, dict[str, float]]:
    policies: dict[str, Callable[[int], Policy]] = {
        "all admitted": lambda n: Policy(max_active=n),
        "32 slots, fair": lambda n: Policy(max_active=32, admission_order="fair"),
        "barrier": lambda n: Policy(max_active=n, barrier=True),
    }
    return {
        name: {str(n): round(microseconds_per_decision(n, make(n), decisions=decisions), 2) for n in sizes}
        for name, make in policies.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m engine.sim.bench", description=__doc__)
    cli.add_argument("--jobs", type=int, nargs="+", default=[100, 1000, 10_000], help="open jobs")
    cli.add_argument("--decisions", type=int, default=50_000)
    cli.add_argument("--json", action="store_true")
    args = cli.parse_args(argv)
    speeds, seconds = measure(args.jobs, args.decisions), round(simulation_seconds(32, 100), 3)
    if args.json:
        print(json.dumps({"microseconds_per_decision": speeds, "simulation_32x100_seconds": seconds}))
        return 0
    for name, by_jobs in speeds.items():
        print(f"{name:<16}" + "".join(f"{jobs:>8} jobs {value:6.2f} µs" for jobs, value in by_jobs.items()))
    print(f"32 jobs of 100 steps simulated in {seconds} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
