"""The peers' loads as they are: N tenants' jobs at once under the engine's own policy, counted from their submission."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from engine import settings as engine_settings
from engine.bench.figures import figures
from engine.bench.loads import WORKLOADS, bench_jobs
from engine.bench.memory import memory_bytes
from engine.bench.output import put_json
from engine.bench.progress import Screen
from engine.bench.session import session
from engine.blobs import BlobStore
from engine.runtime import run_file
from engine.settings import EngineSettings


def main(options: argparse.Namespace) -> int:
    """0 when every job succeeded."""
    model = WORKLOADS[options.workload][0].model
    settings = engine_settings.load(model=model, job_slots=max(options.jobs, 8))
    report = asyncio.run(bench(settings, options.workload, options.jobs, Screen()))
    put_json(report, options.json)
    return 0 if report.get("succeeded") == options.jobs else 1


async def bench(settings: EngineSettings, workload: str, count: int, screen: Screen) -> dict[str, Any]:
    async with session(settings, on_stage=screen.stage) as engine:
        jobs = bench_jobs(workload, count, BlobStore(settings.blobs_dir))
        with screen.shown(1), screen.run(workload, sum(job.steps for job in jobs)) as show:
            run = await engine.play(jobs, regime=workload, on_event=show)
        memory = memory_bytes(run_file.processes(settings))
    found = figures(run.views, submitted_at=run.began, sampler_before=run.sampler_before, sampler_after=run.sampler_after)
    return {"workload": workload, **found, "memory_mb": {name: round(size / 1e6) for name, size in memory.items()}}
