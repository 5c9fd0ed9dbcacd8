"""``python -m engine demo``: several tenants' jobs on one engine, without the portal, with live progress and figures of their sharing."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from engine.blobs import BlobStore
from engine.client import EngineClient
from engine.follow import JobView, shares
from engine.runtime.child import EngineChild
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings
from engine.spec import Submission
from engine.workload import dataset_of

ROWS = 384
EVAL_ROWS = 96

ARITHMETIC = ("add", "max", "reverse", "subtract")
WORDS = ("words",)
# Small steps and an evaluation of every version: a training of this model lasts longer than the few tokens of an answer take to sample, so
# with large steps the jobs would follow one another through the sampler instead of sharing it.
SHORT_ANSWERS = {"prompts_per_step": 8, "group_size": 8, "max_prompt_tokens": 24, "max_new_tokens": 8}
SENTENCES = {"prompts_per_step": 4, "group_size": 8, "max_prompt_tokens": 224, "max_new_tokens": 24}
REFRESH_PER_SECOND = 4


def demo(settings: EngineSettings, *, jobs: int, steps: int, learning_rate: float, figures: Path | None) -> int:
    """Exit code 0 only if every job succeeded. ``figures``: where to write them as JSON."""
    console = Console()
    began = time.monotonic()
    try:
        report = asyncio.run(_demo(settings, jobs, steps, learning_rate, console, began))
    except StartFailed as error:
        console.print(f"The engine did not start: {error}", style="red")
        return 1
    console.print_json(json.dumps(report))
    if figures:
        figures.parent.mkdir(parents=True, exist_ok=True)
        figures.write_text(json.dumps(report, indent=2) + "\n")
    return 0 if report["jobs"] and all(job["state"] == "succeeded" for job in report["jobs"]) else 1


async def _demo(settings: EngineSettings, jobs: int, steps: int, learning_rate: float, console: Console, began: float) -> dict[str, Any]:
    settings.make_dirs()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(EngineClient(settings.engine_url, settings.secret()))
        start_seconds = 0.0
        if not await client.healthy():
            child = EngineChild(settings, on_stage=lambda stage: console.print(f"[dim]{time.monotonic() - began:5.1f} s[/dim]  {stage}"))
            start_seconds = (await stack.enter_async_context(child)).start_seconds
        views = await _submit(client, settings, jobs, steps, learning_rate)
        before = (await client.status())["sampler"]
        await _watch(client, views, console)
        after = (await client.status())["sampler"]
    wall = time.monotonic() - began
    return {
        "jobs": [v.report() for v in views.values()],
        "wall_s": round(wall, 1),
        "start_s": start_seconds,
        **shares(views, before, after),
    }


async def _submit(client: EngineClient, settings: EngineSettings, jobs: int, steps: int, learning_rate: float) -> dict[str, JobView]:
    blobs = BlobStore(settings.blobs_dir)
    run = secrets.token_hex(3)
    cursor = await client.last_offset()
    tasks = ARITHMETIC if settings.model == "tiny-math" else WORDS
    views = {}
    for number in range(jobs):
        task = tasks[number % len(tasks)]
        job, tenant = f"demo-{run}-{number}", f"tenant-{number}"
        spec = _spec(settings.model, dataset_of(blobs, task, rows=ROWS, eval_rows=EVAL_ROWS, seed=number), steps, learning_rate)
        await client.submit(job, Submission(tenant=tenant, submitted_at=datetime.now(UTC), spec=spec))
        views[job] = JobView(job=job, tenant=tenant, task=task, steps=steps, cursor=cursor)
    return views


def _spec(model: str, dataset: Any, steps: int, learning_rate: float) -> dict[str, Any]:
    return {
        "base_model": model,
        "dataset": dataset,
        "grader": {"type": "string_check"} if model == "tiny-math" else {"type": "numeric"},
        "rollout": SHORT_ANSWERS if model == "tiny-math" else SENTENCES,
        "lora": {"rank": 16, "alpha": 32},
        "train": {"steps": steps, "learning_rate": learning_rate},
        "eval": {"every": 1, "max_rows": EVAL_ROWS},
        "seed": 7,
    }


async def _watch(client: EngineClient, views: dict[str, JobView], console: Console) -> None:
    cursor = next(iter(views.values())).cursor
    with Live(_table(views), console=console, refresh_per_second=REFRESH_PER_SECOND) as live:
        async for event in client.follow(views, after=cursor):
            views[event["job"]].take(event)
            live.update(_table(views))


def _table(views: dict[str, JobView]) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in ("tenant", "task", "step", "reward", "phase", "left"):
        table.add_column(column, justify="right" if column in ("step", "reward", "left") else "left")
    for view in views.values():
        table.add_row(view.tenant, view.task, f"{view.step}/{view.steps}", view.reward_text, view.phase, view.left_text)
    return table
