from __future__ import annotations

import os
import secrets
import subprocess
import sys

import pytest

from engine.runtime import reaper

_SLEEP = "import sys, time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def tag():
    tag = secrets.token_hex(8)
    yield tag
    reaper.sweep(tag)


def _start(tag: str, code: str = _SLEEP) -> subprocess.Popen:
    child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, reaper.TAG_VARIABLE: tag}, stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    return child


def test_a_sweep_ends_the_run_and_nothing_else(tag):
    own, other = _start(tag), _start(tag + "-of-another-run")

    assert reaper.sweep(tag) == []

    assert own.wait(10) == -9
    assert other.poll() is None
    reaper.sweep(tag + "-of-another-run")
    other.wait(10)


def test_a_child_that_lost_its_parent_is_found(tag):
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {_SLEEP!r}]).stdout; print('up', flush=True)"
    parent = _start(tag, code)
    parent.wait(10)

    assert reaper.tagged(tag)
    assert reaper.sweep(tag) == []
    assert reaper.tagged(tag) == []


def test_the_watchdog_sweeps_when_its_owner_is_gone(tag):
    worker = _start(tag)
    watchdog = reaper.start(tag)

    watchdog.stdin.close()  # what the kernel does when the owner dies, by whatever signal

    assert watchdog.wait(20) == 0
    assert worker.wait(10) == -9
