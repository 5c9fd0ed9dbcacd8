"""``python -m deploy.supervisor up|down``: run the product in the foreground, or stop what runs."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from rich.console import Console

from deploy.supervisor import lock, post, probes, settings, stack
from deploy.supervisor.app import StartFailed, Supervisor
from deploy.supervisor.progress import Display, console_for, display_for

# The slowest part's grace (the engine's, 30 s) and the keepers' own.
STOP_PATIENCE_SECONDS = 75.0


def main(arguments: list[str]) -> int:
    if arguments not in (["up"], ["down"]):
        print("usage: python -m deploy.supervisor up|down", file=sys.stderr)
        return 2
    console = console_for(sys.stdout)
    try:
        chosen = settings.load()
        return asyncio.run(up(chosen, console)) if arguments == ["up"] else down(chosen, console)
    except (settings.BadSettings, lock.AlreadyRunning, StartFailed) as error:
        console.print(str(error), style="red", markup=False, highlight=False, soft_wrap=True)
        return 1


def supervisor(chosen: settings.Settings, display: Display) -> Supervisor:
    """A supervisor over the real parts, not started yet. Raises ``BadSettings`` and ``AlreadyRunning``."""
    chosen.make_dirs()
    if not lock.is_free(chosen.lock_path):
        raise lock.AlreadyRunning(lock.read_owner(chosen.lock_path))
    chosen.check_ports()
    owner = {"pid": os.getpid(), "url": chosen.url, "engine_url": chosen.engine_url, "since": time.time()}
    return Supervisor(stack.parts(chosen), lock=lock.Lock(chosen.lock_path), owner=owner, cwd=chosen.root, display=display, adopts=True)


async def up(chosen: settings.Settings, console: Console) -> int:
    display = display_for(console, chosen.logs)
    async with supervisor(chosen, display) as running:
        with running.signals():
            if await running.ready() and await _engine_is_there(chosen, running, display):
                display.started(f"\nMARLaaS is up at [bold]{chosen.url}[/bold] (logs: {chosen.logs}). Stop it with Ctrl-C or make down.")
                async with post.told(chosen.mail, console):
                    await running.stopped()
    return 0


async def _engine_is_there(chosen: settings.Settings, running: Supervisor, display: Display) -> bool:
    """Wait for an engine that runs elsewhere, and say so: jobs wait for it, pages do not. False: a stop was asked for meanwhile."""
    return chosen.own_engine or await running.until_answered(
        probes.http(f"{chosen.engine_url}/healthz"),
        lambda note: display.started(
            f"\nThe site is up at [bold]{chosen.url}[/bold], but the engine at {chosen.engine_url} (MARLAAS_ENGINE_URL) {note}. "
            f"Waiting for it; jobs can be made meanwhile and start when it is there. Stop with Ctrl-C or make down."
        ),
    )


def down(chosen: settings.Settings, console: Console) -> int:
    if not lock.stop_owner(chosen.lock_path, patience_seconds=STOP_PATIENCE_SECONDS):
        console.print("Nothing runs.")
        return 0
    console.print("Stopped; no process is left.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
