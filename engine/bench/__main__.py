"""``python -m engine.bench --workload peer-plain --jobs 8 --json F``: N tenants' jobs at once, counted from their submission.

Uses the engine at MARLAAS_ENGINE_URL if one is up, else starts one; its start is not part of any figure.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from engine import settings as engine_settings
from engine.bench.figures import figures
from engine.bench.loads import LOADS, Load
from engine.bench.memory import memory_bytes
from engine.blobs import BlobStore
from engine.client import EngineClient
from engine.follow import JobView
from engine.runtime import run_file
from engine.runtime.child import EngineChild
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings, SettingsError
from engine.spec import Submission
from engine.workload import dataset_of


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every job succeeded."""
    parser = argparse.ArgumentParser(prog="python -m engine.bench", description=__doc__)
    parser.add_argument("--workload", choices=sorted(LOADS), default="peer-plain")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args(arguments)
    load = LOADS[options.workload]
    try:
        settings = engine_settings.load(model=load.model, job_slots=max(options.jobs, 8))
        report = asyncio.run(bench(settings, load, options.jobs))
    except (SettingsError, StartFailed) as error:
        print(error, file=sys.stderr)
        return 1
    text = json.dumps(report, indent=2)
    print(text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n")
    return 0 if report.get("succeeded") == options.jobs else 1


async def bench(settings: EngineSettings, load: Load, jobs: int) -> dict[str, Any]:
    settings.make_dirs()
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(EngineClient(settings.engine_url, settings.secret()))
        if not await client.healthy():
            await stack.enter_async_context(EngineChild(settings))
        specs = [_submission(settings, load, number) for number in range(jobs)]
        before, cursor = (await client.status())["sampler"], await client.last_offset()
        submitted_at = time.time()
        views = await _run(client, specs, load, cursor)
        after = (await client.status())["sampler"]
        memory = memory_bytes(run_file.processes(settings))
    found = figures(views, submitted_at=submitted_at, sampler_before=before, sampler_after=after)
    return {"workload": load.name, **found, "memory_mb": {name: round(size / 1e6) for name, size in memory.items()}}


def _submission(settings: EngineSettings, load: Load, number: int) -> dict[str, Any]:
    return load.spec(dataset_of(BlobStore(settings.blobs_dir), load.task, rows=load.rows, seed=number), seed=number)


async def _run(client: EngineClient, specs: list[dict[str, Any]], load: Load, cursor: int) -> dict[str, JobView]:
    """Submit all at once and follow them to their ends."""
    run = secrets.token_hex(3)
    views = {}
    for number, spec in enumerate(specs):
        job, tenant = f"bench-{run}-{number}", f"tenant-{number}"
        views[job] = JobView(job=job, tenant=tenant, task=load.task, steps=load.steps, cursor=cursor)
        await client.submit(job, Submission(tenant=tenant, submitted_at=datetime.now(UTC), spec=spec))
    async for event in client.follow(views, after=cursor):
        views[event["job"]].take(event)
    return views


if __name__ == "__main__":
    sys.exit(main())
