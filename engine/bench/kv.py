"""``python -m engine.bench kv --jobs 12 --json F``: more jobs than the sampler's cache holds, under fixed and under adaptive concurrency.

An engine of its own with a small KV cache. The jobs' completions are long (two cache blocks each), so that jobs which fit when they begin
no longer fit when they have grown: vLLM then preempts some and computes them again. The estimate-based budget is switched off in every
setting; what differs is how many jobs may roll out at once: 1, 2, 4, 8, all of them, or as many as adaptive admission finds out.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from engine import settings as engine_settings
from engine.bench.loads import PEER_PLAIN, BenchJob, job_of
from engine.bench.output import put_json
from engine.bench.progress import Screen
from engine.bench.report import table
from engine.bench.run import Run
from engine.bench.session import Session, session
from engine.blobs import BlobStore
from engine.durable import make_directory, replace_file
from engine.settings import EngineSettings

FIXED = (1, 2, 4, 8)
UNLIMITED, ADAPTIVE = "unlimited", "adaptive"
META = "_meta"
# 128 blocks of 128 tokens on the bundled model: four of the jobs below when grown, eight when they begin.
KV_GIB = 0.0625
LONG = replace(PEER_PLAIN, name="long", prompts_per_step=2, new_tokens=200, steps=8)
WARM_UP_STEPS = 1
HOUR_SECONDS = 3600.0


def main(arguments: Sequence[str]) -> int:
    """0 when every job succeeded under every setting."""
    options = parser().parse_args(arguments)
    settings = engine_settings.load(model=LONG.model, job_slots=options.jobs, kv_gib=options.kv_gib)
    figures = asyncio.run(kv(settings, options.jobs, options.steps, Screen()))
    folder = settings.state / "bench"
    make_directory(folder)
    replace_file(folder / "kv.md", report(figures).encode())
    put_json(figures, options.json)
    return 0 if all(one["succeeded"] == options.jobs for name, one in figures.items() if name != META) else 1


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m engine.bench kv", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--jobs", type=int, default=12)
    cli.add_argument("--steps", type=int, default=LONG.steps, help="of each job; default: %(default)s")
    cli.add_argument("--kv-gib", type=float, default=KV_GIB, help="the sampler's cache; default: %(default)s")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


async def kv(settings: EngineSettings, count: int, steps: int, screen: Screen) -> dict[str, Any]:
    settings.make_dirs()
    jobs = [job_of(replace(LONG, steps=steps), BlobStore(settings.blobs_dir), number) for number in range(count)]
    found: dict[str, Any] = {}
    async with session(settings, on_stage=screen.stage) as engine:
        with screen.shown(1 + len(policies())):
            await _play(engine, [_short(job) for job in jobs[:2]], "warm-up (not counted)", {}, screen)
            for name, changes in policies().items():
                found[name] = figures(await _play(engine, jobs, name, changes, screen))
    return {**found, META: {"jobs": count, "steps": steps, "kv_gib": settings.kv_gib, **verdict(found)}}


def policies() -> dict[str, dict[str, Any]]:
    """Changes of the ``marlaas`` policy, by name."""
    fixed = {f"fixed-{number}": {"max_rollouts": number} for number in FIXED}
    return {**fixed, UNLIMITED: {}, ADAPTIVE: {"adaptive": {}}}


async def _play(engine: Session, jobs: list[BenchJob], name: str, changes: dict[str, Any], screen: Screen) -> Run:
    await engine.set_regime("marlaas")
    await engine.set_policy({"kv_budget_bytes": None, **changes})
    with screen.run(name, sum(job.steps for job in jobs)) as show:
        run = await engine.play(jobs, regime=name, on_event=show)
    await engine.forget(run)
    return run


def _short(job: BenchJob) -> BenchJob:
    return replace(job, spec={**job.spec, "train": {**job.spec["train"], "steps": WARM_UP_STEPS}})


def figures(run: Run) -> dict[str, Any]:
    """``completion_s``: least, median and largest of the jobs; ``longest_wait_s``: the longest time that any job was without a commit."""
    wall = run.last_commit - run.began
    completions = sorted(view.ending["completion_seconds"] for view in run.jobs if view.ending)
    return {
        "succeeded": sum(view.state == "succeeded" for view in run.jobs),
        "steps_per_hour": round(run.steps * HOUR_SECONDS / wall, 1) if wall > 0 else None,
        "wall_s": round(wall, 3),
        "preempted": run.sampler_after.get("preempted", 0) - run.sampler_before.get("preempted", 0),
        "prefill_tokens": run.sampler_after.get("prefill_tokens", 0) - run.sampler_before.get("prefill_tokens", 0),
        "completion_s": [round(one, 2) for one in (completions[0], median(completions), completions[-1])] if completions else [],
        "longest_wait_s": round(max(_gaps(run), default=0.0), 2),
    }


def _gaps(run: Run) -> list[float]:
    moments = [[run.submitted[name], *view.commits] for name, view in run.views.items()]
    return [after - before for own in moments for before, after in pairwise(own)]


def verdict(found: dict[str, Any]) -> dict[str, Any]:
    """Adaptive against the best fixed setting, and against none."""
    fixed = {name: one for name, one in found.items() if name.startswith("fixed-")}
    best = max(fixed, key=lambda name: fixed[name]["steps_per_hour"] or 0.0)
    return {
        "best_fixed": best,
        "adaptive_to_best_fixed": round(found[ADAPTIVE]["steps_per_hour"] / fixed[best]["steps_per_hour"], 3),
        "preempted_adaptive_to_unlimited": [found[ADAPTIVE]["preempted"], found[UNLIMITED]["preempted"]],
    }


def report(figures: dict[str, Any]) -> str:
    about = figures[META]
    adaptive, unlimited = about["preempted_adaptive_to_unlimited"]
    rows = [
        [name, one["steps_per_hour"], one["preempted"], " / ".join(map(str, one["completion_s"])), one["longest_wait_s"]]
        for name, one in figures.items()
        if name != META
    ]
    head = ["jobs in rollout at once", "steps/h", "preemptions", "completion: least / median / largest, s", "longest without a commit, s"]
    says = (
        f"Adaptive admission reaches {about['adaptive_to_best_fixed']:.0%} of {about['best_fixed']}, the best fixed setting: "
        f"{adaptive} preemptions, without a limit {unlimited}."
    )
    return f"# {about['jobs']} jobs in a cache of {about['kv_gib']} GiB\n\n{table(head, rows)}\n\n{says}\n"
