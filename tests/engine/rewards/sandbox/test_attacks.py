"""Every attack of the corpus in every regime: denied, with the canaries untouched and no process left."""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from engine.rewards.sandbox import Failed, Graded, Limits, Sandbox, TooWeak, Verdict
from engine.rewards.sandbox.bpf import AUDIT_ARCH
from engine.rewards.sandbox.bubblewrap import program
from tests.engine.rewards.sandbox import attacks, processes
from tests.engine.rewards.sandbox.regimes import REGIMES, Regime

# In the engine's stage for its length: five regimes start one after the other.
pytestmark = [pytest.mark.engine, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

FATAL = {**attacks.FATAL, **(attacks.X86_FATAL if os.uname().machine == "x86_64" else {})}
ALL = {**attacks.QUIET, **FATAL}


@dataclass(frozen=True, kw_only=True)
class Canaries:
    folder: Path
    file: Path
    listeners: tuple[socket.socket, ...]
    item: dict[str, Any]

    def touched(self) -> list[str]:
        """What an attack reached: a connection, a changed file, anything new in the folder or in shared memory."""
        ready, _, _ = select.select(self.listeners, (), (), 0)
        found = [str(listener.getsockname()) for listener in ready]
        found += [] if self.file.read_text() == "canary" and self.file.stat().st_mode & 0o777 == 0o644 else ["the file"]
        found += [path.name for path in self.folder.iterdir() if path.name not in ("file", "socket", "checkout")]
        return found + [path for path in ("/dev/shm/marlaas-canary",) if os.path.exists(path)]


@pytest.fixture(scope="module")
def canaries() -> Iterator[Canaries]:
    secret = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="sb-") as name:
        folder = Path(name)
        folder.chmod(0o777)
        file = folder / "file"
        file.write_text("canary")
        file.chmod(0o644)
        loopback, datagram = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        port = loopback.getsockname()[1]
        datagram.bind(("127.0.0.1", port))
        abstract, path = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        abstract.bind(f"\0marlaas-{secret}")
        path.bind(str(folder / "socket"))
        (folder / "socket").chmod(0o777)
        for listener in (abstract, path):
            listener.listen()
        os.environ["MARLAAS_TEST_CANARY"] = secret
        item = {"file": str(file), "folder": name, "port": port, "abstract": f"marlaas-{secret}", "path": str(folder / "socket")}
        item |= {"pid": os.getpid(), "head": secret[:16], "tail": secret[16:]}
        yield Canaries(folder=folder, file=file, listeners=(loopback, datagram, abstract, path), item=item)
        del os.environ["MARLAAS_TEST_CANARY"]
        for listener in (loopback, datagram, abstract, path):
            listener.close()


@dataclass(frozen=True, kw_only=True)
class Siege:
    """``refused``: why this regime is not to be had here; then there are no verdicts."""

    regime: Regime
    verdicts: dict[str, Verdict]
    tier: str | None = None
    own_uid: bool | None = None
    refused: str | None = None
    touched: tuple[str, ...] = ()
    left: tuple[int, ...] = ()


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=REGIMES, ids=lambda regime: regime.name)
async def siege(request, canaries) -> AsyncIterator[Siege]:
    regime: Regime = request.param
    sandbox = Sandbox(regime.settings(), regime.launch(canaries.folder))
    before = processes.below(os.getpid())
    try:
        strength = await sandbox.start()
    except TooWeak as error:
        yield Siege(regime=regime, verdicts={}, refused=str(error))
        return
    try:
        few = asyncio.Semaphore(4)
        verdicts = await asyncio.gather(*(_attempt(sandbox, few, name, body, canaries.item) for name, body in ALL.items()))
        children = processes.below(os.getpid()) - before
    finally:
        await sandbox.close()
    yield Siege(
        regime=regime,
        verdicts=dict(zip(ALL, verdicts, strict=True)),
        tier=strength.tier,
        own_uid=strength.own_uid,
        touched=tuple(canaries.touched()),
        left=tuple(sorted(processes.alive(children))),
    )


async def _attempt(sandbox: Sandbox, few: asyncio.Semaphore, name: str, body: str, item: dict[str, Any]) -> Verdict:
    async with few:
        (verdict,) = await sandbox.grade(name, attacks.source(body), [{"sample": {}, "item": item}], Limits(call_seconds=20.0))
    return verdict


async def test_it_reaches_its_tier_or_says_why_not(siege):
    if siege.refused is None:
        assert (siege.tier, siege.own_uid) == (siege.regime.expected, siege.regime.own_uid)
    else:
        # Only namespaces may be missing on a machine that runs these tests.
        assert siege.regime.expected == "bwrap"
        assert ("bubblewrap is not installed" if program() is None else "bwrap:") in siege.refused


@pytest.mark.parametrize("name", attacks.QUIET)
async def test_it_is_denied(siege, name):
    if siege.refused is None:
        assert siege.verdicts[name] == Graded(reward=0.0)


@pytest.mark.parametrize("name", FATAL)
async def test_it_ends_the_process(siege, name):
    if siege.refused is None:
        verdict = siege.verdicts[name]
        assert isinstance(verdict, Failed)
        assert (verdict.kind, verdict.message) == ("crash", "its process was killed for a forbidden system call")


async def test_no_canary_is_touched(siege):
    assert siege.touched == ()


async def test_no_process_is_left(siege):
    assert siege.left == ()


async def test_the_machine_is_one_that_the_filter_knows():
    assert os.uname().machine in AUDIT_ARCH
