"""The runner of the stages: what runs beside what, and that nothing of a stage outlives it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.run import STAGES, TORCH, Stage, together

BEGINS_WHEN_ALL_BUT_ONE_BEFORE_HAVE_ENDED = """
import pathlib, sys
folder, number = pathlib.Path({folder!r}), {number}
ended = len(list(folder.glob("ended-*")))
(folder / f"ended-{{number}}").touch()
sys.exit(ended < number - 1)
"""
# Parent and child, which holds a pipe open for as long as it lives.
STAYS = """
import os, signal
if not os.fork():
    os.write(os.open({pipe!r}, os.O_WRONLY), b"x")
signal.pause()
"""


def stage(name: str, program: str, *, deadline_seconds: int = 60) -> Stage:
    return Stage(name=name, command=("-I", "-S", "-c", program), deadline_seconds=deadline_seconds)


def test_each_ends_with_its_status_in_the_order_of_the_list(tmp_path: Path) -> None:
    stages = [stage("good", ""), stage("bad", "raise SystemExit(3)"), stage("also", "")]
    assert [(one.name, status) for one, status, _ in together(stages, tmp_path / "passed", 2)] == [("good", 0), ("bad", 3), ("also", 0)]


def test_no_more_run_at_once_than_may(tmp_path: Path) -> None:
    program = BEGINS_WHEN_ALL_BUT_ONE_BEFORE_HAVE_ENDED
    stages = [stage(str(number), program.format(folder=str(tmp_path), number=number)) for number in range(6)]
    assert [status for _, status, _ in together(stages, tmp_path / "passed", 2)] == [0] * 6


def test_one_that_is_late_is_ended_with_what_it_began(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    late = stage("late", STAYS.format(pipe=pipe), deadline_seconds=5)
    ((_, status, _),) = together([late], tmp_path / "passed", 1)
    os.set_blocking(reader, True)
    assert (status, os.read(reader, 1), os.read(reader, 1)) == (124, b"x", b"")
    assert "not done after 5 s" in capsys.readouterr().err
    os.close(reader)


def test_what_one_stage_ignores_of_the_engines_tests_another_runs() -> None:
    by_name = {one.name: one.command for one in STAGES}
    assert set(TORCH) <= set(by_name["torch"])
    assert {f"--ignore={path}" for path in TORCH} <= set(by_name["engine"])
