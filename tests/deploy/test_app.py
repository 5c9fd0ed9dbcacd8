"""The supervisor over dummy parts: what starts, what is restarted, and that nothing ever survives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.supervisor import probes
from deploy.supervisor.app import StartFailed, Supervisor
from deploy.supervisor.keeper import descendants
from deploy.supervisor.lock import AlreadyRunning, Lock
from deploy.supervisor.runner import Runner, State
from deploy.supervisor.service import Service
from tests.deploy.conftest import DUMMY, Switchboard

Dummy = Callable[..., Service]


class Diary:
    """A display that remembers, and lets a test wait for a state."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, State]] = []
        self.news = asyncio.Event()

    def changed(self, runner: Runner) -> None:
        self.entries.append((runner.service.name, runner.state))
        self.news.set()

    async def shows(self, name: str, state: State, times: int = 1) -> None:
        async with asyncio.timeout(30):
            while self.entries.count((name, state)) < times:
                self.news.clear()
                await self.news.wait()

    def start(self, runners: object) -> None: ...
    def started(self, text: str) -> None: ...
    def stopping(self) -> None: ...
    def stop(self) -> None: ...


@pytest.fixture
def supervise(short_folder: Path) -> Callable[..., Supervisor]:
    def make(*services: Service, display: Diary | None = None) -> Supervisor:
        owner = {"pid": os.getpid(), "url": "http://test"}
        return Supervisor(services, lock=Lock(short_folder / "lock"), owner=owner, cwd=short_folder, display=display or Diary())

    return make


async def test_a_part_starts_only_after_those_it_needs(supervise: Callable[..., Supervisor], dummy: Dummy):
    diary = Diary()
    migrations = dummy("migrations", once=True, command=("true",))
    async with supervise(dummy("web", after=("migrations",)), migrations, display=diary) as supervisor:
        assert await supervisor.ready()
    assert diary.entries.index(("migrations", State.DONE)) < diary.entries.index(("web", State.STARTING))


async def test_a_part_stops_only_after_those_that_need_it(supervise: Callable[..., Supervisor], dummy: Dummy):
    diary = Diary()
    async with supervise(dummy("valkey"), dummy("web", after=("valkey",)), display=diary) as supervisor:
        await supervisor.ready()
    assert diary.entries.index(("web", State.STOPPED)) < diary.entries.index(("valkey", State.STOPPING))


async def test_a_crashed_part_comes_back(supervise: Callable[..., Supervisor], dummy: Dummy, switchboard: Switchboard):
    diary = Diary()
    async with supervise(dummy("web"), display=diary) as supervisor:
        await supervisor.ready()
        await asyncio.to_thread(switchboard.came_up, "web")
        switchboard.crash("web")
        switchboard.died("web")
        await diary.shows("web", State.READY, times=2)
        await asyncio.to_thread(switchboard.came_up, "web")
        assert supervisor.runners["web"].restarts == 1


async def test_what_a_crashed_part_left_running_is_ended_before_it_comes_back(
    supervise: Callable[..., Supervisor], dummy: Dummy, switchboard: Switchboard
):
    diary = Diary()
    async with supervise(dummy("engine", "family"), display=diary) as supervisor:
        await supervisor.ready()
        await asyncio.to_thread(switchboard.came_up, "engine")
        await asyncio.to_thread(switchboard.came_up, "engine-orphan")
        switchboard.crash("engine")
        await diary.shows("engine", State.RESTARTING)
        switchboard.died("engine-orphan")


async def test_a_part_that_never_comes_up_ends_the_start_with_its_last_log_lines(supervise: Callable[..., Supervisor], dummy: Dummy):
    broken = dummy("web", command=("sh", "-c", "echo no such setting; exit 3"), once=True)
    async with supervise(broken) as supervisor:
        with pytest.raises(StartFailed, match=r"(?s)failed with exit status 3.*web\.log.*no such setting"):
            await supervisor.ready()


async def test_a_part_that_misses_its_deadline_is_ended_and_tried_again(
    supervise: Callable[..., Supervisor], dummy: Dummy, short_folder: Path
):
    mute = dummy("web", probe=probes.log_line(short_folder / "web.log", "never said"), ready_seconds=0.0)
    diary = Diary()
    async with supervise(mute, display=diary):
        await diary.shows("web", State.RESTARTING)


async def test_a_stop_during_the_start_ends_the_wait(supervise: Callable[..., Supervisor], dummy: Dummy, short_folder: Path):
    mute = dummy("web", probe=probes.log_line(short_folder / "web.log", "never said"))
    async with supervise(mute) as supervisor:
        supervisor.request_stop()
        assert await supervisor.ready() is False


async def test_a_second_start_in_the_same_state_folder_is_refused(supervise: Callable[..., Supervisor], dummy: Dummy):
    async with supervise(dummy("web")):
        with pytest.raises(AlreadyRunning, match="make down"):
            async with supervise(dummy("web")):
                pass


async def test_the_folder_is_free_again_after_a_stop(supervise: Callable[..., Supervisor], dummy: Dummy):
    async with supervise(dummy("web")) as first:
        await first.ready()
    async with supervise(dummy("web")) as second:
        assert await second.ready()


# Supervisors in a process of their own, so that they can be killed.

PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from deploy.supervisor.app import Supervisor
from deploy.supervisor.keeper import descendants
from deploy.supervisor.lock import Lock
from deploy.supervisor.service import Service
from tests.deploy.test_app import Diary

folder, dummy, address = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
def part(name, manner, **more):
    command = (sys.executable, "-S", dummy, address, name, manner)
    return Service(name=name, title=name, command=command, log=folder / f"{name}.log", stop_seconds=0.5, **more)

async def main():
    services = [part("valkey", "stay"), part("engine", "family"), part("web", "stubborn", after=("valkey",))]
    owner = {"pid": os.getpid(), "url": "http://test"}
    async with Supervisor(services, lock=Lock(folder / "lock"), owner=owner, cwd=folder, display=Diary(), adopts=True) as supervisor:
        with supervisor.signals():
            await supervisor.stopped()

asyncio.run(main())
"""
EVERYONE = ("valkey", "engine", "engine-orphan", "web")


@pytest.fixture
def running(short_folder: Path, switchboard: Switchboard) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(short_folder), str(DUMMY), switchboard.address])
    for name in EVERYONE:
        switchboard.came_up(name)
    return process


@pytest.mark.parametrize("chosen", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_every_process(running: subprocess.Popen[bytes], switchboard: Switchboard, chosen: signal.Signals):
    running.send_signal(chosen)
    for name in EVERYONE:
        switchboard.died(name)
    assert running.wait(30) == 0


def test_killing_the_supervisor_leaves_no_process(running: subprocess.Popen[bytes], switchboard: Switchboard):
    running.kill()
    for name in EVERYONE:
        switchboard.died(name)
    running.wait(30)


def test_killing_a_keeper_ends_its_part_and_what_that_left_and_the_part_comes_back(
    running: subprocess.Popen[bytes], switchboard: Switchboard
):
    keeper = next(pid for pid in descendants(running.pid) if b"keeper.py" in cmdline(pid) and b"family" in cmdline(pid))
    os.kill(keeper, signal.SIGKILL)
    switchboard.died("engine")
    switchboard.died("engine-orphan")
    switchboard.came_up("engine")
    running.terminate()
    assert running.wait(30) == 0


def cmdline(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


async def test_what_runs_elsewhere_is_waited_for_and_said(supervise: Callable[..., Supervisor], dummy: Dummy):
    answers = iter([probes.Health(ready=False, answers=False)] * 2 + [probes.Health(ready=False, answers=True, note="loading…")])
    up = asyncio.Event()
    said: list[str] = []

    async def probe(_log_start: int) -> probes.Health:
        if (answer := next(answers, None)) is not None:
            return answer
        await up.wait()
        return probes.Health(ready=True, answers=True)

    def tell(why: str) -> None:
        said.append(why)
        if "loading" in why:
            up.set()

    async with supervise(dummy("web")) as running:
        assert await running.until_answered(probe, tell)
    assert said == ["does not answer", "is not ready: loading…"]


async def test_a_stop_ends_the_wait_for_what_runs_elsewhere(supervise: Callable[..., Supervisor], dummy: Dummy):
    async def probe(_log_start: int) -> probes.Health:
        return probes.Health(ready=False, answers=False)

    async with supervise(dummy("web")) as running:
        assert not await running.until_answered(probe, lambda why: running.request_stop())
