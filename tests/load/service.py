"""``python -m tests.load.service --json F``: a whole installation under the load of a busy day, for ten minutes.

Two hundred open run pages (websockets), fifty programs on the REST API, eight jobs that train at the same time. PostgreSQL, Valkey, the
portal's processes and the engine are real, one of each; ``--fakes`` puts the engine's fake sampler and trainer in the place of the
models, for a machine that cannot carry both. It holds when no call failed, no watcher missed or doubled an event, no process grew, and 99
of 100 steps were on the watchers' sockets within a second of the engine's stamp.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from time import monotonic, time
from typing import Any

import httpx
from rich.console import Console
from rich.progress import Progress

from engine.settings import EngineSettings
from tests.browser.people import Person, seed
from tests.load.live import QUANTILES, Seen, all_connected, memory_of, session_of, watch
from tests.load.output import tell
from tests.support.house import House, standing
from tests.support.parts import parts

TENANTS = 4
STEPS = 5000  # more than there is time for
MOST_P99_SECONDS = 1.0
MOST_GROWTH = 1.25
# Memory is read so often in a run; growth counts from the reading at which caches are full to the last.
READINGS = 12
WARM = 4
# 512 completions a step, so that a step of the small model takes seconds, as a real one's does.
ORDER = {
    "rollout": {"prompts_per_step": 32, "group_size": 16, "max_prompt_tokens": 24, "max_new_tokens": 8},
    "lora": {"rank": 8, "alpha": 16},
}
PORTAL = ("web", "worker", "ingester", "valkey")
ACTORS = {"manager": "ray::ManagerActor", "engine http": "ray::HttpActor", "sampler": "VLLM", "trainer": "ray::TrainActor"}


@dataclass
class Calls:
    """What the programs saw: seconds of each answered call by what was asked, and what failed."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: Counter[str] = field(default_factory=Counter)

    def took(self, what: str, seconds: float) -> None:
        self.seconds.setdefault(what, []).append(seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        engine = {"FAKE_SAMPLER_SECONDS": "0.8", "FAKE_STEP_SECONDS": "0.1"} if options.fakes else {}
        settings = {
            "MARLAAS_NICENESS": str(EngineSettings.model_fields["niceness"].default),  # as installed
            "MARLAAS_JOB_SLOTS": str(options.jobs),
            "MARLAAS_STARTING_CREDIT": "1000000",
            "MARLAAS_KV_GIB": "0.75",
            **engine,
        }
        with standing(Path(folder) / "var", real=not options.fakes, **settings) as house:
            found = asyncio.run(load(house, options, console))
    return tell(found, options.json, console)


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m tests.load.service", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--watchers", type=int, default=200, help="default: %(default)s, spread over the jobs")
    cli.add_argument("--clients", type=int, default=50, help="programs on the API; default: %(default)s")
    cli.add_argument("--pause", type=float, default=5.0, help="seconds between two calls of one program; default: %(default)s")
    cli.add_argument("--jobs", type=int, default=8, help="default: %(default)s")
    cli.add_argument("--minutes", type=float, default=10.0, help="default: %(default)s")
    cli.add_argument("--fakes", action="store_true", help="no models: the engine's own fakes sample and train")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


async def load(house: House, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    people = [await asyncio.to_thread(seed, house, f"load{number}@example.org", f"Load {number}") for number in range(TENANTS)]
    sessions = [await asyncio.to_thread(session_of, house, person) for person in people]
    jobs = [await asyncio.to_thread(people[number % TENANTS].job, STEPS, f"job {number}", **ORDER) for number in range(options.jobs)]
    with console.status("waiting for every job's first step"):
        await all_running(people, jobs)
    seen, calls = Seen(), Calls()
    async with asyncio.TaskGroup() as group:
        on = [(jobs[number % len(jobs)], sessions[number % len(jobs) % TENANTS]) for number in range(options.watchers)]
        tasks = [group.create_task(watch(house, job, session, seen)) for job, session in on]
        await all_connected(seen, options.watchers, console)
        for number in range(options.clients):
            owner = number % TENANTS
            mine = [job for index, job in enumerate(jobs) if index % TENANTS == owner]
            tasks.append(group.create_task(client(house, people[owner], mine, number, options, calls)))
        memory = await readings(house, seen, options, console)
        for task in tasks:
            task.cancel()
    versions = [people[number % TENANTS].api.get(f"jobs/{job}/").json()["version"] for number, job in enumerate(jobs)]
    return figures(seen, calls, memory, sum(versions), options)


async def all_running(people: Sequence[Person], jobs: Sequence[str]) -> None:
    async with asyncio.timeout(180):
        for number, job in enumerate(jobs):
            api = people[number % TENANTS].api
            while (await asyncio.to_thread(api.get, f"jobs/{job}/")).json()["version"] < 1:
                await asyncio.sleep(0.2)


async def client(house: House, person: Person, jobs: Sequence[str], number: int, options: argparse.Namespace, calls: Calls) -> None:
    """A program that looks after its jobs, one call every ``pause`` seconds; they begin apart from one another."""
    await asyncio.sleep(options.pause * number / options.clients)
    headers = {"Authorization": person.api.headers["Authorization"]}
    after = 0
    async with httpx.AsyncClient(base_url=f"{house.url}/api/v1/", headers=headers, timeout=30, trust_env=False) as api:
        for job, what in zip(
            cycle(jobs), cycle(("jobs/", "job", "events", "datasets/", "job", "usage/", "events", "rewards/")), strict=False
        ):
            path = {"job": f"jobs/{job}/", "events": f"jobs/{job}/events/"}.get(what, what)
            began = monotonic()
            try:
                answer = await api.get(path, params={"after": after} if what == "events" else None)
            except httpx.HTTPError as error:
                calls.failed[f"{what}: {type(error).__name__}"] += 1
            else:
                calls.took(what, monotonic() - began)
                if answer.status_code != 200:
                    calls.failed[f"{what}: {answer.status_code}"] += 1
            await asyncio.sleep(max(0.0, options.pause - (monotonic() - began)))


async def readings(house: House, seen: Seen, options: argparse.Namespace, console: Console) -> list[dict[str, int]]:
    """Each process's memory in bytes, ``READINGS`` times, evenly over the run."""
    found = []
    seen.since = time()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("under load", total=READINGS)
        for _ in range(READINGS):
            await asyncio.sleep(60 * options.minutes / READINGS)
            found.append(await asyncio.to_thread(memory, house))
            progress.advance(bar)
    return found


def memory(house: House) -> dict[str, int]:
    """Resident bytes by process; of the engine's actors the largest of each kind."""
    found = {name: memory_of(house.processes[name].pid) for name in PORTAL}
    for name, title in ACTORS.items():
        sizes = [memory_of(pid) for pid in parts(house.engine, title)]
        if sizes:
            found[name] = max(sizes)
    return found


def figures(seen: Seen, calls: Calls, memory: Sequence[dict[str, int]], steps: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds from the engine's stamp to the sockets (``lag``; its 99th percentile also for each tenth of the run), of calls (``api``),
    memory in MB by reading and its growth since it was warm.
    """
    lag, api = quantiles(seen.seconds), quantiles([second for kind in calls.seconds.values() for second in kind])
    warm, last = memory[WARM - 1], memory[-1]
    growth = {name: round(last[name] / warm[name], 3) for name in last if name in warm}
    return {
        "engine": "fakes" if options.fakes else "real, tiny-math",
        **{name: getattr(options, name) for name in ("watchers", "clients", "jobs", "minutes")},
        "steps": steps,
        "steps_seen": len(seen.seconds),
        "lag": lag,
        "lag_p99_by_tenth": [quantiles(part)["p99"] for part in tenths(seen.seconds)],
        "breaks": seen.breaks,
        "calls": sum(map(len, calls.seconds.values())),
        "calls_failed": dict(calls.failed),
        "api": api,
        "api_by_call": {kind: quantiles(found) for kind, found in sorted(calls.seconds.items())},
        "memory_mb": {name: [round(reading[name] / 2**20) for reading in memory if name in reading] for name in last},
        "growth": growth,
        "holds": bool(lag)
        and lag["p99"] < MOST_P99_SECONDS
        and not seen.breaks
        and not calls.failed
        and bool(api)
        and max(growth.values()) < MOST_GROWTH,
    }


def tenths(seconds: Sequence[float]) -> list[Sequence[float]]:
    """In the order of their coming: whether a bad figure is that of a bad minute. Empty for fewer than ten."""
    size = len(seconds) // 10
    return [seconds[start : start + size] for start in range(0, 10 * size, size)] if size else []


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return (
        {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4) for name, share in QUANTILES.items()} if ordered else {}
    )


if __name__ == "__main__":
    sys.exit(main())
