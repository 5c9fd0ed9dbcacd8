from __future__ import annotations

import asyncio
import multiprocessing
import subprocess
import sys

import pytest

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
