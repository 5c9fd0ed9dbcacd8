"""Start everything, let the tenants train at the same time, show it live, write ``var/demo.json``.

Environment: MARLAAS_MODEL, LR (learning rate; 0: control run), EXIT=1 (end with the jobs; exit status 0 only if all succeeded).
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from deploy.demo import logins
from deploy.demo.client import Refused, Tenant
from deploy.demo.follow import Followed
from deploy.demo.plan import Order, orders
from deploy.demo.report import all_succeeded, report
from deploy.demo.screen import Screen
from deploy.supervisor import lock, post, settings
from deploy.supervisor.__main__ import supervisor
from deploy.supervisor.app import StartFailed, Supervisor
from deploy.supervisor.progress import Display, console_for, display_for
from engine import settings as engine_settings

POLL_SECONDS = 0.5
# No demo job takes longer; beyond it something hangs, and nothing may wait for ever.
JOBS_SECONDS = 3600.0


def main() -> int:
    console = console_for(sys.stdout)
    try:
        rate = _learning_rate(os.environ.get("LR", ""))
        chosen = settings.load()
        return asyncio.run(demo(chosen, orders(chosen.model, rate), console, stay=os.environ.get("EXIT", "") in ("", "0")))
    except (settings.BadSettings, lock.AlreadyRunning, StartFailed, Refused, logins.SeedFailed, TimeoutError) as error:
        console.print(str(error) or "the demo took too long and was stopped", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1


def _learning_rate(text: str) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        raise settings.BadSettings(f"LR={text}: must be a number such as 0 or 0.001") from None


async def demo(chosen: settings.Settings, wanted: Sequence[Order], console: Console, *, stay: bool) -> int:
    started = time.monotonic()
    display = display_for(console, chosen.logs)
    async with supervisor(chosen, display) as running:
        with running.signals():
            work = asyncio.create_task(_train(running, chosen, wanted, console, display, started))
            stopped = asyncio.create_task(running.stopped())
            try:
                await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
                if stopped.done():
                    await stopped
                    return 130
                succeeded = await work
                if stay:
                    _say_where(chosen, wanted, console)
                    async with post.told(chosen.mail, console):
                        await stopped
                return 0 if succeeded else 1
            finally:
                for task in (work, stopped):
                    task.cancel()
                await asyncio.gather(work, stopped, return_exceptions=True)


async def _train(
    running: Supervisor, chosen: settings.Settings, wanted: Sequence[Order], console: Console, display: Display, started: float
) -> bool:
    await running.runners["migrations"].up.wait()
    tokens = await logins.seed(chosen, wanted)
    await running.ready()
    display.started(f"Everything is up after {time.monotonic() - started:.0f} s: {chosen.url}")
    tenants = [Tenant(chosen.url, token, order) for token, order in zip(tokens, wanted, strict=True)]
    try:
        before = await _sampler(chosen)
        views = [Followed(order=tenant.order) for tenant in tenants]
        for view, job in zip(views, await asyncio.gather(*(tenant.start_job() for tenant in tenants)), strict=True):
            view.job = job
        await _follow(tenants, views, console, chosen.url)
        found = report(views, wall_seconds=time.monotonic() - started, sampler_before=before, sampler_after=await _sampler(chosen))
    finally:
        for tenant in tenants:
            await tenant.close()
    target = chosen.state / "demo.json"
    _write(target, found)
    _say_result(found, target, console)
    return all_succeeded(views)


async def _follow(tenants: Sequence[Tenant], views: Sequence[Followed], console: Console, url: str) -> None:
    with Screen(console, views, url) as screen:
        async with asyncio.timeout(JOBS_SECONDS):
            while not all(view.done for view in views):
                await asyncio.gather(*(_update(tenant, view) for tenant, view in zip(tenants, views, strict=True)))
                screen.show()
                await asyncio.sleep(POLL_SECONDS)


async def _update(tenant: Tenant, view: Followed) -> None:
    try:
        view.take(await tenant.events(view.last_seq))
    except httpx.TransportError as error:
        # The web process may be restarting under the supervisor; the next turn asks again from the same number.
        view.reason = f"no answer from the portal: {error}"


async def _sampler(chosen: settings.Settings) -> dict[str, Any]:
    """The sampler's counters, from the engine's own status."""
    secret = engine_settings.load(engine_url=chosen.engine_url).secret()
    async with httpx.AsyncClient(timeout=30) as http:
        answer = await http.get(f"{chosen.engine_url}/status", headers={"Authorization": f"Bearer {secret}"})
    return answer.raise_for_status().json().get("sampler") or {}


def _write(target: Path, found: dict[str, Any]) -> None:
    staged = target.with_suffix(".json.staging")
    staged.write_text(json.dumps(found, indent=2) + "\n")
    staged.replace(target)


def _say_result(found: dict[str, Any], target: Path, console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for heading in ("tenant", "task", "state", "steps", "reward", "held-out", "first step", "per step", "total", "mismatch KL"):
        table.add_column(heading, no_wrap=True)
    for job in found["jobs"]:
        kl = "–" if job["mismatch_kl_mean"] is None else f"{job['mismatch_kl_mean']:.1e}"
        rewards = (_change(job["reward_first3"], job["reward_last3"]), _change(job["heldout_first"], job["heldout_last"]))
        times = (_seconds(job[name]) for name in ("ttfs_s", "tpts_s", "completion_s"))
        table.add_row(job["tenant"], job["task"], job["state"], str(job["steps"]), *rewards, *times, kl)
    console.print(table)
    shares = {name: found[name] for name in ("rollout_overlap", "train_rollout_overlap", "decode_steps_with_2_adapters")}
    console.print(f"{found['wall_s']} s in all; " + ", ".join(f"{name} {share:.2f}" for name, share in shares.items()), highlight=False)
    console.print(f"written to {target}", style="dim", highlight=False, soft_wrap=True)


def _change(first: float | None, last: float | None) -> str:
    return "–" if first is None or last is None else f"{first:.2f} → {last:.2f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} s"


def _say_where(chosen: settings.Settings, wanted: Sequence[Order], console: Console) -> None:
    console.print(f"\nThe site stays up at [bold]{chosen.url}[/bold]. Log in as", highlight=False)
    for order in wanted:
        console.print(f"  {order.email}   password {logins.password(chosen.state)}   ({order.tenant})", highlight=False, markup=False)
    console.print("Stop it with Ctrl-C or make down.", highlight=False)


if __name__ == "__main__":
    sys.exit(main())
