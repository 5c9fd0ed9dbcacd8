"""``python -m engine.bench words --json F``: a real chat model learns word problems, and held-out rows say by how much.

One job on ``smollm2-135m`` with generated one-step word problems. The last version is held against the untrained model on problems that
were never trained on, answered greedily and paired row by row. It holds when the bootstrap interval of the mean difference lies above zero.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
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
from engine.settings import EngineSettings
from engine.workload import dataset_of

MODEL, TASK = "smollm2-135m", "words"
ROWS, EVAL_ROWS = 512, 96
STEPS_PER_ROW_OF_REPORT = 10


def main(arguments: Sequence[str]) -> int:
    """0 when the job succeeded and its last version is better than the base model beyond chance."""
    options = parser().parse_args(arguments)
    settings = engine_settings.load(model=MODEL)
    found = asyncio.run(words(settings, options, Screen()))
    make_directory(settings.state / "bench")
    replace_file(settings.state / "bench" / "words.md", report(found).encode())
    put_json(found, options.json)
    return 0 if found["holds"] else 1


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m engine.bench words", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--steps", type=int, default=40, help="default: %(default)s")
    cli.add_argument("--learning-rate", type=float, default=1e-4, help="default: %(default)s; 0 is a control run")
    cli.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


async def words(settings: EngineSettings, options: argparse.Namespace, screen: Screen) -> dict[str, Any]:
    settings.make_dirs()
    job = word_job(BlobStore(settings.blobs_dir), options)
    async with session(settings, on_stage=screen.stage) as engine:
        began = time.monotonic()
        with screen.shown(1), screen.run(TASK, job.steps) as show:
            run = await engine.play([job], regime="marlaas", on_event=show)
        seconds = time.monotonic() - began
        await engine.forget(run)
    return figures(run, options, seconds)


def word_job(blobs: BlobStore, options: argparse.Namespace) -> BenchJob:
    dataset = dataset_of(blobs, TASK, rows=ROWS, eval_rows=EVAL_ROWS, seed=options.seed)
    spec = {
        "base_model": MODEL,
        "dataset": dataset.model_dump(mode="json"),
        "grader": {"type": "numeric"},
        "rollout": {"prompts_per_step": 4, "group_size": 8, "max_prompt_tokens": 224, "max_new_tokens": 16},
        "lora": {"rank": 16, "alpha": 32},
        "train": {"steps": options.steps, "learning_rate": options.learning_rate},
        "eval": {"max_rows": EVAL_ROWS},
        "seed": options.seed,
    }
    return BenchJob(kind=TASK, spec=spec)


def figures(run: Run, options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """``comparison``: ``engine.paired.Comparison`` of the last version with the untrained model, None when the job did not get there.

    ``wall_s``: from the submission to the job's end, its two evaluations included.
    """
    (view,) = run.jobs
    comparison = view.comparisons.get(view.steps)
    return {
        "model": MODEL,
        "steps": options.steps,
        "learning_rate": options.learning_rate,
        "seed": options.seed,
        "heldout_rows": EVAL_ROWS,
        "rewards": [round(reward, 4) for reward in view.rewards],
        "comparison": comparison,
        "mismatch_kl": view.mismatch_kl,
        "wall_s": round(seconds, 1),
        "holds": run.succeeded and comparison is not None and _above_zero(comparison),
    }


def _above_zero(comparison: dict[str, Any]) -> bool:
    return comparison["low"] is not None and comparison["low"] > 0


def report(found: dict[str, Any]) -> str:
    rewards = found["rewards"]
    rows = [_stretch(rewards, first) for first in range(0, len(rewards), STEPS_PER_ROW_OF_REPORT)]
    verdict = found["comparison"]["verdict"] if found["comparison"] else "not measured"
    title = f"# Word problems on {found['model']}: {found['steps']} steps in {found['wall_s'] / 60:.0f} minutes"
    held = f"Held-out, {found['heldout_rows']} problems, greedy, last version against the untrained model: {verdict}."
    return f"{title}\n\n{held}\n\n{table(['steps', 'reward'], rows)}\n"


def _stretch(rewards: Sequence[float], first: int) -> list[str]:
    some = rewards[first : first + STEPS_PER_ROW_OF_REPORT]
    return [f"{first + 1}–{first + len(some)}", f"{fmean(some):.3f}"]
