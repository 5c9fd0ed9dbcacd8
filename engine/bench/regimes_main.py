"""One workload under several regimes: from the command line to the JSON and the report."""

from __future__ import annotations

import argparse
import asyncio
import os
from typing import Any

from engine import settings as engine_settings
from engine.bench.loads import WORKLOADS, bench_jobs
from engine.bench.measure import ALL, TWIN, TWIN_OF, Measured, measure, meta
from engine.bench.output import put_json
from engine.bench.progress import Screen
from engine.bench.regimes import over_rounds, regime_figures
from engine.bench.report import write_report
from engine.blobs import BlobStore
from engine.settings import PREFIX, EngineSettings
from engine.sim import profile as machine_profile
from engine.sim.bench_jobs import planned, with_sampled
from engine.sim.predict import compare, predict
from engine.sim.profile import MachineProfile

# A key that no regime can have.
META = "_meta"
# Room for ten jobs' completions at once, which the default for small machines has not.
KV_GIB = 1.0


def main(options: argparse.Namespace) -> int:
    """0 when no job failed."""
    profile = machine_profile.read(options.profile) if options.profile else None
    settings = _settings(WORKLOADS[options.workload][0].model, options.jobs)
    jobs = bench_jobs(options.workload, options.jobs, BlobStore(settings.blobs_dir))
    screen = Screen()
    found = asyncio.run(
        measure(
            settings,
            jobs,
            regimes=options.regimes,
            rounds=options.rounds,
            seed=options.seed,
            cut_seconds=options.cut or None,
            with_bound=not options.no_bound,
            screen=screen,
        )
    )
    about = meta(found, workload=options.workload, jobs=jobs, settings=settings, seed=options.seed)
    figures = _figures(found)
    folder = options.report or settings.state / "bench" / f"{options.workload}-{options.jobs}"
    predicted = _predicted(profile, options, figures) if profile else {}
    screen.stage(f"report: {write_report(folder, figures, about, found, predicted)}")
    twin = {TWIN: {**figures[TWIN_OF], "same_run_as": TWIN_OF}} if options.regimes == ALL else {}
    put_json({**figures, **twin, META: {**about, "predicted": predicted}}, options.json)
    return 0 if found.succeeded else 1


def _settings(model: str, jobs: int) -> EngineSettings:
    """As the environment says; where it is silent, with room for all jobs."""
    room: dict[str, Any] = {} if f"{PREFIX}KV_GIB" in os.environ else {"kv_gib": KV_GIB}
    settings = engine_settings.load(model=model, job_slots=max(jobs, 8), **room)
    settings.make_dirs()
    return settings


def _predicted(profile: MachineProfile, options: argparse.Namespace, figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The simulator's figures of the same jobs on the machine of ``profile``, by regime."""
    jobs = with_sampled(planned(options.workload, options.jobs), figures)
    return compare(predict(profile, jobs, regimes=options.regimes), figures)


def _figures(found: Measured) -> dict[str, dict[str, Any]]:
    return {name: over_rounds([regime_figures(run, found.bound) for run in runs]) for name, runs in found.runs.items()}
