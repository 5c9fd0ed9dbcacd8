"""A part of the engine in a process of its own."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from engine.bench.parts import PartFailed, in_child
from engine.settings import EngineSettings
from tests.engine.bench import works

pytestmark = pytest.mark.engine


@pytest.fixture
def ask():
    def ask(work: Any, *, seconds: float = 60.0, on_stage: Any = lambda stage: None) -> Any:
        first = (min(os.sched_getaffinity(0)),)
        settings = EngineSettings()
        settings.make_dirs()
        return in_child(work, settings, 21, cores=first, seconds=seconds, on_stage=on_stage)

    return ask


def test_it_answers_and_says_how_far_it_is(ask):
    heard: list[str] = []

    assert ask(works.doubled, on_stage=heard.append) == 42
    assert heard == ["doubling…"]


def test_it_keeps_to_its_cores(ask):
    assert ask(works.cores) == {min(os.sched_getaffinity(0))}


@pytest.mark.parametrize(
    ("work", "seconds", "why"), [(works.refused, 60.0, "too much"), (works.lost, 60.0, "without an answer"), (works.silent, 0.1, "0.1 s")]
)
def test_it_says_why_there_is_no_answer(ask, work, seconds, why):
    with pytest.raises(PartFailed, match=why):
        ask(work, seconds=seconds)


def test_a_child_of_a_failed_part_ends_with_it_whatever_it_calls_itself(ask):
    with pytest.raises(PartFailed, match=r"left (\d+)") as failed:
        ask(works.orphaned)
    pid = int(re.search(r"left (\d+)", str(failed.value))[1])
    assert not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text()
