"""``python -m engine.sim --regime marlaas --jobs 10``: the real scheduler in virtual time, one line a regime."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from engine.core.policy import REGIMES, regime
from engine.sim.driver import simulate
from engine.sim.report import Report, table
from engine.sim.workload import SHAPES, workload


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(prog="python -m engine.sim", description="Runs the engine's scheduler in virtual time.")
    cli.add_argument("--regime", choices=["all", *REGIMES], default="all", help="which regime to run (default: all)")
    cli.add_argument("--workload", choices=sorted(SHAPES), default="agentic")
    cli.add_argument("--jobs", type=_positive, default=10)
    cli.add_argument("--steps", type=_positive, default=20, help="training steps of each job")
    cli.add_argument("--slots", type=_positive, default=32, help="adapter slots: jobs admitted at once")
    cli.add_argument("--contention", type=float, default=0.1, help="0: batching costs a rollout nothing; 1: it gains nothing")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--json", action="store_true", help="print JSON instead of the table")
    return cli


def run(args: argparse.Namespace) -> dict[str, Report]:
    jobs = workload(args.workload, jobs=args.jobs, steps=args.steps, seed=args.seed)
    names = list(REGIMES) if args.regime == "all" else [args.regime]
    return {name: simulate(regime(name, slots=args.slots), jobs, contention=args.contention) for name in names}


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    reports = run(args)
    if args.json:
        print(json.dumps({name: asdict(report) for name, report in reports.items()}, indent=2))
    else:
        print(f"{args.jobs} {args.workload} jobs of {args.steps} steps, contention {args.contention:g}, virtual seconds")
        print(table(reports))
    return 0


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
