"""``python -m engine.sim [run|tables|predict|speed]``: the real scheduler in virtual time. See deploy/SIMULATOR.md."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from engine.bench import loads as bench_loads
from engine.core.policy import REGIMES, regime
from engine.durable import make_directory, replace_file
from engine.sim import bench_jobs, layout, profile
from engine.sim.driver import simulate
from engine.sim.paper import SCALES, WORKLOADS
from engine.sim.plots import plots
from engine.sim.predict import compare, predict, prediction_table
from engine.sim.report import Report, table
from engine.sim.runs import Runs
from engine.sim.speed import measure, text
from engine.sim.statements import statements
from engine.sim.tables import rounded, tables
from engine.sim.workload import replicas


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(prog="python -m engine.sim", description="Runs the engine's scheduler in virtual time.")
    commands = cli.add_subparsers(dest="command", required=True)
    _add_run(commands.add_parser("run", help="a regime, or all of them, on a workload of the paper (this is what runs without a command)"))
    _add_tables(commands.add_parser("tables", help="the paper's tables and figures, simulated, beside its own statements"))
    _add_predict(commands.add_parser("predict", help="how long the bench's workloads will take on a machine that was measured"))
    _add_speed(commands.add_parser("speed", help="how fast the scheduler decides and the simulator simulates, on this machine"))
    return cli


def _add_run(cli: argparse.ArgumentParser) -> None:
    cli.set_defaults(do=run)
    cli.add_argument("--regime", choices=["all", *REGIMES], default="all", help="which regime to run (default: all)")
    cli.add_argument("--workload", choices=sorted(WORKLOADS), default="mixed")
    cli.add_argument("--model", choices=sorted(SCALES), default="Qwen3-0.6B")
    cli.add_argument("--jobs", type=_positive, default=10)
    cli.add_argument("--steps", type=_positive, default=20, help="training steps of each job")
    cli.add_argument("--slots", type=_positive, default=32, help="adapter slots: jobs admitted at once")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--json", action="store_true", help="print JSON instead of the table")


def run(args: argparse.Namespace) -> int:
    names = list(REGIMES) if args.regime == "all" else [args.regime]
    reports = {name: _report(args, name) for name in names}
    if args.json:
        print(json.dumps({name: asdict(report) for name, report in reports.items()}, indent=2))
    else:
        print(f"{args.jobs} {args.workload} jobs of {args.steps} steps on {args.model}, virtual seconds")
        print(table(reports))
    return 0


def _add_tables(cli: argparse.ArgumentParser) -> None:
    cli.set_defaults(do=show_tables)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--json", action="store_true", help="print JSON instead of the tables")
    cli.add_argument("--most-steps", type=_two_or_more, help="no job gets more steps, for a quick look (default: as in the paper)")
    cli.add_argument("--out", type=Path, help="write tables.json, tables.txt and the plots as SVG into this folder")


def show_tables(args: argparse.Namespace) -> int:
    runs = Runs(seed=args.seed, most_steps=args.most_steps, told=_progress)
    found = {"seed": args.seed, **tables(runs)}
    found["statements"] = statements(runs, found)
    data = json.dumps(rounded(found), indent=2)
    print(data if args.json else layout.text(found))
    if args.out is not None:
        files = {"tables.json": data + "\n", "tables.txt": layout.text(found) + "\n", **plots(runs, found)}
        _write(args.out, files)
    return 0


def _write(folder: Path, files: dict[str, str]) -> None:
    make_directory(folder)
    for name, content in files.items():
        replace_file(folder / name, content.encode())


def _progress(line: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def _add_predict(cli: argparse.ArgumentParser) -> None:
    cli.set_defaults(do=show_prediction)
    cli.add_argument("--profile", type=Path, required=True, help="what python -m engine.bench profile has written")
    cli.add_argument("--workload", choices=sorted(bench_loads.WORKLOADS), default="reasoning")
    cli.add_argument("--jobs", type=_positive, default=10)
    cli.add_argument("--measured", type=Path, help="the JSON of python -m engine.bench: its wall times stand beside the predicted ones")
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--json", action="store_true", help="print JSON instead of the table")


def show_prediction(args: argparse.Namespace) -> int:
    """1 for a profile that cannot be read."""
    try:
        machine = profile.read(args.profile)
        measured = json.loads(args.measured.read_text()) if args.measured else {}
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    jobs = bench_jobs.with_sampled(bench_jobs.planned(args.workload, args.jobs), measured)
    found = compare(predict(machine, jobs, regimes=list(REGIMES), seed=args.seed), measured)
    if args.json:
        print(json.dumps(found, indent=2))
    else:
        print(f"{args.jobs} {args.workload} jobs on {machine.machine}, {machine.model}")
        print(prediction_table(found))
    return 0


def _add_speed(cli: argparse.ArgumentParser) -> None:
    cli.set_defaults(do=speed)
    cli.add_argument("--jobs", type=_positive, default=10_000, help="open jobs")
    cli.add_argument("--decisions", type=_positive, default=20_000, help="facts in each measurement")
    cli.add_argument("--rounds", type=_positive, default=3)
    cli.add_argument("--json", action="store_true")


def speed(args: argparse.Namespace) -> int:
    result = measure(args.jobs, decisions=args.decisions, rounds=args.rounds)
    print(json.dumps(result, indent=2) if args.json else text(result))
    return 0


def _report(args: argparse.Namespace, name: str) -> Report:
    policy, scale = regime(name, slots=args.slots), SCALES[args.model]
    jobs = replicas(WORKLOADS[args.workload], jobs=args.jobs, steps=args.steps, seed=args.seed)
    return simulate(policy, jobs, scale.collocated() if policy.collocated else scale.disaggregated())


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        arguments.insert(0, "run")
    args = parser().parse_args(arguments)
    do: Callable[[argparse.Namespace], int] = args.do
    return do(args)


def _positive(text: str) -> int:
    return _at_least(1, text)


def _two_or_more(text: str) -> int:
    """A time per step takes two of them."""
    return _at_least(2, text)


def _at_least(least: int, text: str) -> int:
    value = int(text)
    if value < least:
        raise argparse.ArgumentTypeError(f"must be at least {least}, got {value}")
    return value


if __name__ == "__main__":
    sys.exit(main())
