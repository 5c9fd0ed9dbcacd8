from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys

import pytest

from engine import device
from engine.runtime import process


async def test_the_end_of_a_child_is_noticed_without_polling():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gone = asyncio.get_running_loop().create_future()
    process.watch([child.pid], gone.set_result)

    child.kill()

    assert await asyncio.wait_for(gone, 10) == child.pid
    child.wait()
    child.stdin.close()


async def test_a_child_that_has_gone_before_counts_too():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    gone = asyncio.get_running_loop().create_future()

    process.watch([child.pid], gone.set_result)

    assert await asyncio.wait_for(gone, 10) == child.pid


def test_a_process_knows_its_children_by_title():
    child = subprocess.Popen(["/bin/sleep", "600"])
    try:
        assert child.pid in process.children(named="sleep")
        assert child.pid not in process.children(named="VLLM")
    finally:
        child.kill()
        child.wait()


def test_a_spawned_child_without_a_title_is_known_all_the_same():
    spawn = multiprocessing.get_context("spawn")
    child = spawn.Process(target=spawn.Event().wait)
    child.start()
    try:
        assert child.pid in process.children(named="VLLM")
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize(("started_with", "runs_with"), [(0, 15), (19, 19)])
def test_a_process_is_never_less_nice_than_it_was_started(started_with, runs_with):
    script = "import os; from engine import device; device.let_others_go_first(15); print(os.getpriority(os.PRIO_PROCESS, 0))"
    command = ["nice", "-n", str(started_with), sys.executable, "-c", script]
    assert int(subprocess.run(command, capture_output=True, text=True, check=True).stdout) == runs_with


@pytest.mark.parametrize(("leads", "nice", "becomes"), [(True, 0, "10"), (True, 15, None), (False, 0, None)])
def test_the_leader_of_a_session_lets_others_go_first_and_is_never_less_nice(tmp_path, leads, nice, becomes):
    group = tmp_path / "autogroup"
    group.write_text(was := f"/autogroup-7 nice {nice}\n")
    script = "import sys; from pathlib import Path; from engine import device; device.let_other_sessions_go_first(10, Path(sys.argv[1]))"
    subprocess.run([sys.executable, "-c", script, str(group)], check=True, start_new_session=leads)
    assert group.read_text() == (becomes or was)


def test_where_cores_are_not_shared_among_sessions_nothing_is_written(tmp_path):
    device.let_other_sessions_go_first(10, tmp_path / "autogroup")
    assert not list(tmp_path.iterdir())
