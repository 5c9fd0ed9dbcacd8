"""``python -m tests.load.live --json F``: how long a committed step takes to whoever watches its page, with many watchers.

Everything but the engine is real: web, worker, ingester, Valkey and the database, one process each. The fake engine stamps each event
when it happens; a watcher is a websocket like a page's, which notes when the event arrived, so a latency has the long poll, the
transaction, the wake-up, the reading and the socket in it, all on one clock. Some watchers never read: they must slow nobody. A page in a
browser needs a frame more to draw it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from pathlib import Path
from time import time
from typing import Any

import httpx
import websockets
from rich.console import Console
from rich.progress import Progress

from tests.browser.people import PASSWORD, Person, seed
from tests.browser.stack import Stack
from tests.load.output import tell
from tests.load.standing import stack_up

TENANTS = 4
MOST_P99_SECONDS = 0.5
MOST_GROWTH = 1.25
# The fake engine's step takes about a second at speed 1.
_FIRST_READING = 0.3
_CONNECT_SECONDS, _CONNECT_AT_ONCE = 60.0, 16


@dataclass
class Seen:
    """What all watchers saw: seconds from each step's stamp to its arrival, and how often a number was missing or came twice.

    ``since``: events stamped from then on count, when all have connected. ``door``: so many connect at once, as people do.
    """

    seconds: list[float] = field(default_factory=list)
    breaks: int = 0
    since: float = inf
    connected: int = 0
    door: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_CONNECT_AT_ONCE))


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the 99th percentile is under half a second, no watcher missed or doubled an event, and the web process did not grow."""
    options = parser().parse_args(arguments)
    console = Console()
    with stack_up(console, speed=options.speed, slots=options.jobs) as stack:
        found = asyncio.run(load(stack, options, console))
    return tell(found, options.json, console)


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m tests.load.live", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--watchers", type=int, default=200, help="default: %(default)s, spread over the jobs")
    cli.add_argument("--deaf", type=int, default=4, help="watchers more that never read; default: %(default)s")
    cli.add_argument("--jobs", type=int, default=20, help="default: %(default)s")
    cli.add_argument("--seconds", type=float, default=60.0, help="default: %(default)s")
    cli.add_argument("--speed", type=float, default=0.5, help="steps a second of each job, about; default: %(default)s")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


async def load(stack: Stack, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    people = [await asyncio.to_thread(seed, stack, f"watcher{number}@example.org", f"Watchers {number}") for number in range(TENANTS)]
    sessions = [await asyncio.to_thread(session_of, stack, person) for person in people]
    steps = round(10 * options.speed * options.seconds) + 1000  # more than there is time for
    jobs = [(await asyncio.to_thread(people[number % TENANTS].job, steps), sessions[number % TENANTS]) for number in range(options.jobs)]
    seen = Seen()
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watch(stack, *jobs[number % len(jobs)], seen)) for number in range(options.watchers)]
        deaf = [group.create_task(never_read(stack, *jobs[number % len(jobs)], seen)) for number in range(options.deaf)]
        await all_connected(seen, len(watching) + len(deaf), console)
        memory = await readings(stack, seen, options.seconds, console)
        for task in (*watching, *deaf):
            task.cancel()
    return figures(seen, memory, options)


async def watch(stack: Stack, job: str, session: str, seen: Seen) -> None:
    """As a page does, from the job's first event on."""
    last = 0
    async with connected(stack, job, session, seen) as socket:
        async for text in socket:
            now = time()
            for event in json.loads(text).get("events", ()):
                seen.breaks += event["seq"] != last + 1
                last = event["seq"]
                stamp = datetime.fromisoformat(event["at"]).timestamp()
                if event["kind"] == "step" and stamp >= seen.since:
                    seen.seconds.append(now - stamp)


async def never_read(stack: Stack, job: str, session: str, seen: Seen) -> None:
    async with connected(stack, job, session, seen, max_queue=1):
        await asyncio.Event().wait()


@asynccontextmanager
async def connected(stack: Stack, job: str, session: str, seen: Seen, **more: Any) -> AsyncIterator[Any]:
    url = f"{stack.url.replace('http', 'ws')}/ws/jobs/{job}/?after=0"
    more |= {"max_size": None, "open_timeout": _CONNECT_SECONDS, "ping_interval": None}
    async with seen.door:
        socket = await websockets.connect(url, additional_headers={"Cookie": f"sessionid={session}"}, origin=stack.url, **more)
    seen.connected += 1
    async with socket:
        yield socket


async def all_connected(seen: Seen, wanted: int, console: Console) -> None:
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("connecting", total=wanted)
        while seen.connected < wanted:
            await asyncio.sleep(0.1)
            progress.update(bar, completed=seen.connected)


async def readings(stack: Stack, seen: Seen, seconds: float, console: Console) -> list[int]:
    """The web process's memory in bytes: after the first third, when its caches are warm, and at the end."""
    found = []
    seen.since = time()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("watching", total=100)
        for part in range(100):
            await asyncio.sleep(seconds / 100)
            progress.advance(bar)
            if part + 1 in (round(100 * _FIRST_READING), 100):
                found.append(memory_of(stack.processes["web"].pid))
    return found


def memory_of(pid: int) -> int:
    """Resident bytes."""
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def session_of(stack: Stack, person: Person) -> str:
    with httpx.Client(base_url=stack.url, follow_redirects=True, trust_env=False) as browser:
        browser.get("/accounts/login/")
        form = {"login": person.email, "password": PASSWORD, "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
        browser.post("/accounts/login/", data=form)
        return browser.cookies["sessionid"]


def figures(seen: Seen, memory: Sequence[int], options: argparse.Namespace) -> dict[str, Any]:
    """Latencies in seconds from the engine's stamp to the watcher, ``growth``: the web process's memory at the end over a warm one."""
    ordered = sorted(seen.seconds)
    at = {name: round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4) for name, share in QUANTILES.items()} if ordered else {}
    growth = round(memory[-1] / memory[0], 3)
    return {
        "watchers": options.watchers,
        "jobs": options.jobs,
        "deaf": options.deaf,
        "steps_seen": len(ordered),
        "steps_per_second": round(len(ordered) / options.watchers * options.jobs / options.seconds, 2),
        **at,
        "breaks": seen.breaks,
        "web_mb": round(memory[-1] / 2**20, 1),
        "growth": growth,
        "holds": bool(ordered) and at["p99"] < MOST_P99_SECONDS and not seen.breaks and growth < MOST_GROWTH,
    }


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}


if __name__ == "__main__":
    sys.exit(main())
