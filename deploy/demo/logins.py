"""The demo's people: made in the portal by its own command, with one password kept in the state folder."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from deploy.demo.plan import Order
from deploy.supervisor.settings import Settings

SEED_SECONDS = 120.0


class SeedFailed(RuntimeError):
    """The portal's command could not make a login; the text has what it said."""


def password(state: Path) -> str:
    """The password of all demo logins, made once; readable by its owner only."""
    path = state / "demo-password"
    if not path.exists():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"demo-{secrets.token_urlsafe(9)}")
    return path.read_text()


async def seed(settings: Settings, orders: Sequence[Order]) -> list[str]:
    """An API token per order's tenant; a tenant that is there already keeps its jobs and gets a new token."""
    shared = password(settings.state)
    # One after another: each takes a second of processor time, and meanwhile the engine is loading.
    # The first person may also use the records admin.
    return [await _seed(settings, order, shared, () if number else ("--operator",)) for number, order in enumerate(orders)]


async def _seed(settings: Settings, order: Order, password_text: str, more: tuple[str, ...]) -> str:
    flags = ("--email", order.email, "--password", password_text, "--name", order.tenant, "--token", *more)
    process = await asyncio.create_subprocess_exec(
        *(settings.python, "manage.py", "seed_tenant", *flags),
        cwd=settings.root,
        env={**os.environ, **settings.environment},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(SEED_SECONDS):
        said, complained = await process.communicate()
    if process.returncode:
        raise SeedFailed(f"the login {order.email} could not be made: {complained.decode(errors='replace')[-2000:]}")
    return json.loads(said.decode().splitlines()[-1])["token"]
