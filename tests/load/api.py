"""``python -m tests.load.api --json F``: what a request waits when many programs ask at once, while a job runs.

Everything but the engine is real: web, worker, ingester, Valkey and the database, one process each. Each client has a token of its own,
asks one thing after another, and does not wait between. So the median is what fifty at once make of one process, and the ratio of the 99th
percentile to it says whether some wait for the others: there is no absolute aim.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from rich.console import Console

from tests.browser.people import seed
from tests.browser.stack import Stack
from tests.load.output import tell
from tests.load.standing import stack_up

MOST_RATIO = 5.0
PEOPLE = 5
# What programs ask for: pages of lists, one thing, what is new of a job.
PATHS = ("me/", "jobs/", "jobs/{job}/", "jobs/{job}/events/?after={seq}", "datasets/", "rewards/", "models/", "billing/")
_LONGEST_SECONDS = 30.0
_ISSUE = """
import json
from django.utils import timezone
from tenants import tokens
from tenants.models import User
people = [User.objects.get(email=email) for email in {emails}]
print(json.dumps([tokens.issue(user.tenants.get(), user, "load", timezone.now())[1] for user in people]))
"""


@dataclass
class Answers:
    """Seconds of each answer by its path, of those that were asked for after the warm-up; and what was no 200, by what it was."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    wrong: Counter[str] = field(default_factory=Counter)
    counting: bool = False


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when the 99th percentile is at most five times the median and every answer was a 200."""
    options = parser().parse_args(arguments)
    console = Console()
    # Limits would end the measurement, not the waiting.
    unlimited = {"MARLAAS_API_CALLS_PER_TOKEN": "1000000", "MARLAAS_API_CALLS_PER_TENANT": "1000000"}
    with stack_up(console, unlimited, speed=options.speed) as stack:
        found = asyncio.run(load(stack, options, console))
    return tell(found, options.json, console)


def parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    cli = argparse.ArgumentParser(prog="python -m tests.load.api", description=__doc__, formatter_class=shape)
    cli.add_argument("--clients", type=int, default=50, help="default: %(default)s")
    cli.add_argument("--seconds", type=float, default=20.0, help="default: %(default)s")
    cli.add_argument("--warm-up", type=float, default=5.0, help="seconds before that are not counted; default: %(default)s")
    cli.add_argument("--speed", type=float, default=0.5, help="steps a second of the running job, about; default: %(default)s")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


async def load(stack: Stack, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    people = [await asyncio.to_thread(seed, stack, f"program{number}@example.org", f"Programs {number}") for number in range(PEOPLE)]
    steps = round(10 * options.speed * (options.seconds + options.warm_up)) + 1000  # more than there is time for
    jobs = [await asyncio.to_thread(person.job, steps) for person in people[:1]] + [None] * (PEOPLE - 1)
    tokens = await asyncio.to_thread(tokens_of, stack, [people[number % PEOPLE].email for number in range(options.clients)])
    answers = Answers()
    with console.status(f"{options.clients} clients ask"):
        asking = [
            asyncio.create_task(ask(stack, token, paths(jobs[number % PEOPLE], number), answers)) for number, token in enumerate(tokens)
        ]
        await asyncio.sleep(options.warm_up)
        answers.counting = True
        await asyncio.sleep(options.seconds)
        answers.counting = False
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
    ran = people[0].api.get(f"jobs/{jobs[0]}/").json()
    return figures(answers, options, job_ran=ran["state"] == "running" and ran["version"] > 0)


def tokens_of(stack: Stack, emails: Sequence[str]) -> list[str]:
    """A token for each, of the person with that address; made by hand, since no token that people have makes others."""
    said = stack.manage("shell", "-v", "0", "-c", _ISSUE.format(emails=list(emails)))
    return json.loads(said.splitlines()[-1])


def paths(job: str | None, first: int) -> list[str]:
    """In an order of the client's own, so that not all ask for the same at once; who has no job asks for none."""
    known = [path for path in PATHS if job or "{job}" not in path]
    return [path.format(job=job, seq=5) for path in islice(cycle(known), first % len(known), first % len(known) + len(known))]


async def ask(stack: Stack, token: str, addresses: list[str], answers: Answers) -> None:
    """One thing after another, until it is cancelled."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=f"{stack.url}/api/v1/", headers=headers, timeout=_LONGEST_SECONDS, trust_env=False) as client:
        for address in cycle(addresses):
            began = perf_counter()
            try:
                status = str((await client.get(address)).status_code)
            except httpx.HTTPError as error:
                status = type(error).__name__
            if answers.counting and status == "200":
                answers.seconds.setdefault(address.partition("?")[0], []).append(perf_counter() - began)
            if status != "200":
                answers.wrong[f"{status} {address}"] += 1
                await asyncio.sleep(0.1)


def figures(answers: Answers, options: argparse.Namespace, *, job_ran: bool) -> dict[str, Any]:
    """Seconds of all requests together, ``ratio`` p99 over p50, and both of each address."""
    ordered = sorted(second for seconds in answers.seconds.values() for second in seconds)
    at = {name: round(quantile(ordered, share), 4) for name, share in QUANTILES.items()} if ordered else {}
    ratio = round(at["p99"] / at["p50"], 2) if ordered else None
    return {
        "clients": options.clients,
        "requests": len(ordered),
        "requests_per_second": round(len(ordered) / options.seconds, 1),
        **at,
        "ratio": ratio,
        "by_address": {address: _middle_and_end(sorted(seconds)) for address, seconds in sorted(answers.seconds.items())},
        "wrong": dict(answers.wrong),
        "job_ran": job_ran,
        "holds": ratio is not None and ratio <= MOST_RATIO and not answers.wrong and job_ran,
    }


def _middle_and_end(ordered: Sequence[float]) -> dict[str, float]:
    return {name: round(quantile(ordered, QUANTILES[name]), 4) for name in ("p50", "p99")}


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "worst": 1.0}


if __name__ == "__main__":
    sys.exit(main())
