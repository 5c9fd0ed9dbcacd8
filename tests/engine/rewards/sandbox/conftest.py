"""One plain sandbox for a whole module: starting one takes about a second."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from engine.rewards.sandbox import Sandbox, SandboxSettings

MEMORY_BYTES = 256 * 2**20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(SandboxSettings(tier="plain", memory_bytes=MEMORY_BYTES, spares=2, max_workers=8))
    await sandbox.start()
    yield sandbox
    await sandbox.close()
