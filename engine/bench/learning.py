"""``python -m engine.bench learning --json F``: every loss makes the bundled model better, and a learning rate of 0 leaves it alone.

One job per loss and seed, all with the default settings of a job, and a control per seed with a learning rate of 0; all of them share one
engine. What counts is the accuracy on held-out prompts (greedy), of the last version against the untrained model, in points. No held-out
prompt is ever trained on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from engine import settings as engine_settings
from engine.bench.loads import BenchJob
from engine.bench.output import put_json
from engine.bench.progress import Screen
from engine.bench.report import table
from engine.bench.run import Run
from engine.bench.session import session
from engine.blobs import BlobStore
from engine.durable import make_directory, replace_file
from engine.follow import JobView
from engine.models.tasks import TINY_TASKS
from engine.settings import PREFIX, EngineSettings
from engine.train_spec import TrainSpec
from engine.workload import dataset_of

LOSSES: tuple[str, ...] = TrainSpec.model_fields["loss"].annotation.__args__
CONTROL, META = "control", "_meta"
MODEL = "tiny-math"
ROWS, EVAL_ROWS = 512, 256
# Room for all jobs' completions at once, which the default for small machines has not.
KV_GIB = 1.0
LEAST_LIFT_POINTS, MOST_DRIFT_POINTS = 30.0, 3.0


def main(arguments: Sequence[str]) -> int:
    """0 when every job succeeded, every loss lifted the held-out accuracy by 30 points, and the control moved by less than 3."""
    options = parser().parse_args(arguments)
    room: dict[str, Any] = {} if f"{PREFIX}KV_GIB" in os.environ else {"kv_gib": KV_GIB}
    settings = engine_settings.load(model=MODEL, **room)
    figures = asyncio.run(learning(settings, options, Screen()))
    make_directory(settings.state / "bench")
    replace_file(settings.state / "bench" / "learning.md", report(figures).encode())
    put_json(figures, options.json)
    return 0 if figures[META]["holds"] else 1


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m engine.bench learning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    help_losses = f"some of {','.join(LOSSES)}; default: all"
    cli.add_argument("--losses", type=_losses, default=LOSSES, help=help_losses)
    cli.add_argument("--seeds", type=int, default=5, help="jobs per loss; default: %(default)s")
    cli.add_argument("--steps", type=int, default=TrainSpec().steps, help="of each job; default: %(default)s")
    cli.add_argument("--epochs", type=int, default=1, help="passes over each step's completions; default: %(default)s")
    cli.add_argument("--minibatches", type=int, default=1, help="updates per pass; default: %(default)s")
    cli.add_argument("--task", choices=TINY_TASKS, default="add", help="default: %(default)s")
    cli.add_argument("--no-control", action="store_true", help="leave out the jobs with a learning rate of 0")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


def _losses(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in names if name not in LOSSES]:
        raise argparse.ArgumentTypeError(f"unknown loss {unknown[0]!r}; choose among {', '.join(LOSSES)}")
    return names


async def learning(settings: EngineSettings, options: argparse.Namespace, screen: Screen) -> dict[str, Any]:
    settings.make_dirs()
    jobs = learning_jobs(BlobStore(settings.blobs_dir), options)
    async with session(settings, on_stage=screen.stage) as engine:
        await engine.set_regime("marlaas")
        with screen.shown(1), screen.run("all jobs", sum(job.steps for job in jobs)) as show:
            run = await engine.play(jobs, regime="marlaas", on_event=show)
        await engine.forget(run)
    return figures(run, options)


def learning_jobs(blobs: BlobStore, options: argparse.Namespace) -> list[BenchJob]:
    """Seed by seed, so that a run that is cut has compared all losses on the seeds that it did."""
    asked = {"steps": options.steps, "epochs": options.epochs, "minibatches": options.minibatches}
    variants = {loss: {**asked, "loss": loss} for loss in options.losses}
    if not options.no_control:
        variants[CONTROL] = {**asked, "learning_rate": 0.0}
    return [
        BenchJob(kind=name, spec=_spec(blobs, options.task, seed, train))
        for seed in range(options.seeds)
        for name, train in variants.items()
    ]


def _spec(blobs: BlobStore, task: str, seed: int, train: dict[str, Any]) -> dict[str, Any]:
    """Nothing but the data, the loss and the seed is said: all else is the default of a job."""
    dataset = dataset_of(blobs, task, rows=ROWS, eval_rows=EVAL_ROWS, seed=seed)
    return {
        "base_model": MODEL,
        "dataset": dataset.model_dump(mode="json"),
        "grader": {"type": "string_check"},
        "train": train,
        "seed": seed,
    }


def figures(run: Run, options: argparse.Namespace) -> dict[str, Any]:
    """By variant, and the verdict. Accuracies in 0..1, lifts in points (hundredths)."""
    kinds = list(dict.fromkeys(view.task for view in run.jobs))
    found: dict[str, Any] = {kind: _variant([view for view in run.jobs if view.task == kind]) for kind in kinds}
    losses = [found[kind] for kind in kinds if kind != CONTROL]
    lifted = all(one["lift_points"] and min(one["lift_points"]["by_seed"]) >= LEAST_LIFT_POINTS for one in losses)
    still = CONTROL not in found or _still(found[CONTROL])
    settings = {name: getattr(options, name) for name in ("task", "seeds", "steps", "epochs", "minibatches")}
    verdict = {"every_loss_lifts": lifted, "control_is_still": still, "holds": run.succeeded and lifted and still}
    bounds = {"least_lift_points": LEAST_LIFT_POINTS, "most_drift_points": MOST_DRIFT_POINTS}
    wall = round(run.last_commit - run.began, 1)
    return {**found, META: {**settings, "model": MODEL, "heldout_rows": EVAL_ROWS, "wall_s": wall, **bounds, **verdict}}


def _variant(views: list[JobView]) -> dict[str, Any]:
    """``lift_points`` is None unless every job of the variant has been measured at both ends."""
    known = [view.heldout for view in views if {0, view.steps} <= view.heldout.keys()]
    complete = len(known) == len(views)
    ends = [(held[0], held[max(held)]) for held in known]
    mismatches = [view.mismatch_kl for view in views if view.mismatch_kl is not None]
    return {
        "succeeded": sum(view.state == "succeeded" for view in views),
        "heldout_first": _spread([first for first, _ in ends]) if complete else None,
        "heldout_last": _spread([last for _, last in ends]) if complete else None,
        "lift_points": _spread([100 * (last - first) for first, last in ends]) if complete else None,
        "mismatch_kl": max(mismatches, default=None),
    }


def _still(control: dict[str, Any]) -> bool:
    return bool(control["lift_points"]) and max(map(abs, control["lift_points"]["by_seed"])) < MOST_DRIFT_POINTS


def _spread(values: list[float]) -> dict[str, Any]:
    std = stdev(values) if len(values) > 1 else 0.0
    return {"mean": round(fmean(values), 4), "std": round(std, 4), "by_seed": [round(value, 4) for value in values]}


def report(figures: dict[str, Any]) -> str:
    about = figures[META]
    rows = [
        [name, *(_told(one[key]) for key in ("heldout_first", "heldout_last", "lift_points")), f"{one['mismatch_kl'] or 0:.1e}"]
        for name, one in figures.items()
        if name != META
    ]
    head = ["loss", "held-out accuracy before", "after", "lift, points", "mismatch-KL, mean of the worst job"]
    title = (
        f"# {about['task']} on {about['model']}: {about['steps']} steps, {about['seeds']} seeds, {about['heldout_rows']} held-out prompts"
    )
    says = "holds" if about["holds"] else "does NOT hold"
    bounds = (
        f"at least {about['least_lift_points']:g} points for every loss and seed, less than {about['most_drift_points']:g} without learning"
    )
    return f"{title}\n\n{table(head, rows)}\n\nAsked for: {bounds}. It {says}.\n"


def _told(spread: dict[str, Any] | None) -> str:
    return "not measured" if spread is None else f"{spread['mean']:.3g} ± {spread['std']:.2g}"
