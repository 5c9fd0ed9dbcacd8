"""The runner process: what it inherits, what it says of its strength, and that nothing outlives it or its engine."""

from __future__ import annotations

import asyncio
import os
import platform
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.rewards.sandbox import Failed, Graded, Limits, Sandbox, SandboxSettings, TooWeak, bubblewrap, prove, strength
from engine.rewards.sandbox.nursery import CannotSpawn, Walls
from tests.engine.rewards.sandbox import processes

pytestmark = pytest.mark.engine

ROOT = Path(__file__).resolve().parents[4]
ITEM = {"sample": {}, "item": {}}
PATIENT = Limits(call_seconds=20.0)
PLAIN = SandboxSettings(tier="plain", spares=1, max_workers=4)
RIGHT = "def grade(sample, item):\n    return 1.0\n"
GONE_SECONDS = 20


def watch(pids: set[int]) -> list[int]:
    return [os.pidfd_open(pid) for pid in pids]


def all_end(pidfds: list[int]) -> bool:
    """Whether every process behind ``pidfds`` has ended before the deadline."""
    return all(select.select([pidfd], [], [], GONE_SECONDS)[0] for pidfd in pidfds)


async def started(settings: SandboxSettings = PLAIN) -> tuple[Sandbox, int, set[int]]:
    """A sandbox with one busy tenant; its runner's pid, and all that runs below it."""
    before = processes.below(os.getpid())
    sandbox = Sandbox(settings)
    await sandbox.start()
    assert await sandbox.grade("a", RIGHT, [ITEM], PATIENT) == [Graded(reward=1.0)]
    runner = sandbox._runner._process.pid
    return sandbox, runner, processes.below(os.getpid()) - before


async def test_the_runner_has_an_empty_environment_and_a_folder_of_its_own(monkeypatch):
    monkeypatch.setenv("MARLAAS_ENGINE_SECRET", "canary")
    sandbox, runner, everything = await started()
    try:
        for pid in everything:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            assert b"canary" not in environment and b"MARLAAS" not in environment
            assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert len(os.listdir(f"/proc/{runner}/fd")) < 40
    finally:
        await sandbox.close()


def test_the_runner_needs_the_standard_library_only():
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import engine.rewards.runner"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


async def test_closing_leaves_no_process():
    sandbox, _, everything = await started()
    await sandbox.close()
    assert processes.alive(everything) == set()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_the_runners_death_takes_every_worker_with_it(number):
    sandbox, runner, everything = await started(SandboxSettings(spares=1, max_workers=4))
    pidfds = watch(everything)
    os.kill(runner, number)
    assert await asyncio.to_thread(all_end, pidfds)
    await sandbox.close()


async def test_a_runner_that_died_is_started_anew():
    sandbox, runner, _ = await started()
    os.kill(runner, signal.SIGKILL)
    await sandbox._runner._listening
    assert await sandbox.grade("a", RIGHT, [ITEM], PATIENT) == [Graded(reward=1.0)]
    await sandbox.close()


async def test_items_that_were_in_the_dead_runner_are_nobodys_fault():
    sandbox, runner, _ = await started()
    call = asyncio.create_task(sandbox.grade("b", "def grade(sample, item):\n    while True: x = 1\n", [ITEM], Limits(call_seconds=100.0)))
    await sandbox.grade("a", RIGHT, [ITEM], PATIENT)
    os.kill(runner, signal.SIGKILL)
    (verdict,) = await call
    assert isinstance(verdict, Failed) and verdict.kind == "unavailable"
    await sandbox.close()


async def test_a_template_that_died_is_started_anew_and_the_item_graded():
    sandbox, runner, everything = await started()
    (template,) = [pid for pid in everything if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] == str(runner)]
    pidfds = watch(everything - {runner})
    os.kill(template, signal.SIGKILL)
    assert await asyncio.to_thread(all_end, pidfds)
    assert await sandbox.grade("a", RIGHT, [ITEM], PATIENT) == [Graded(reward=1.0)]
    await sandbox.close()


ENGINE = """
import asyncio, os, sys
sys.path.insert(0, sys.argv[1])
from engine.rewards.sandbox import Sandbox, SandboxSettings

async def main():
    sandbox = Sandbox(SandboxSettings(tier="plain", spares=1))
    await sandbox.start()
    if os.fork() == 0:
        os.read(0, 1)
    print(sandbox._runner._process.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(main())
"""


def test_a_killed_engine_leaves_no_runner_even_when_a_child_of_it_holds_the_socket():
    with subprocess.Popen([sys.executable, "-c", ENGINE, str(ROOT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as engine:
        runner = int(engine.stdout.readline())
        pidfds = watch({runner, *processes.below(runner)})
        engine.kill()
        engine.wait()
        assert all_end(pidfds)


async def test_a_machine_without_landlock_is_refused_with_the_way_out(monkeypatch):
    class Toothless(strength.Nursery):
        async def start(self):
            return {**await super().start(), "landlock": 0}

    monkeypatch.setattr(strength, "Nursery", Toothless)
    with pytest.raises(TooWeak, match=r"no Landlock.*MARLAAS_REWARD_SANDBOX=weak"):
        await strength.open_nursery(SandboxSettings(tier="plain", spares=1))


async def test_a_wall_that_does_not_hold_is_found_by_the_probe():
    walls = Walls(bubblewrap=False, landlock=True, bpf=None, first_uid=None, memory_bytes=2**28)
    nursery = strength.Nursery(walls, spares=1)
    try:
        with pytest.raises(CannotSpawn, match=r"it was possible to look for a file, .*make memory executable"):
            await strength._prove(nursery, "plain", {})
    finally:
        await nursery.close()


async def test_an_unknown_architecture_is_refused(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(TooWeak, match="no seccomp filter for riscv64"):
        await strength.open_nursery(SandboxSettings())


async def test_without_bubblewrap_the_best_tier_is_plain_and_says_why(monkeypatch):
    monkeypatch.setattr(bubblewrap, "program", lambda: None)
    nursery, found = await strength.open_nursery(SandboxSettings(spares=1))
    await nursery.close()
    assert (found.tier, found.refused) == ("plain", {"bwrap": "bubblewrap is not installed"})
    assert "no bwrap: bubblewrap is not installed" in str(found)


async def test_proving_the_walls_leaves_nothing_running():
    before = processes.below(os.getpid())
    found = await prove(PLAIN)
    assert (found.tier, found.seccomp, processes.below(os.getpid()) - before) == ("plain", True, set())


async def test_weak_must_be_asked_for_by_name():
    nursery, found = await strength.open_nursery(SandboxSettings(tier="weak", spares=1))
    await nursery.close()
    assert (found.tier, found.as_dict()["tier"]) == ("weak", "weak")
