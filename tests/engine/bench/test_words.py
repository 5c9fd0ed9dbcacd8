from __future__ import annotations

import json

import pytest

from engine.bench.words import EVAL_ROWS, figures, parser, report, word_job
from engine.blobs import BlobStore
from engine.follow import JobView
from engine.spec import parse_job
from tests.engine.bench.runs import run, step


def options(*words: str):
    return parser().parse_args(words)


def view(*, low: float | None, state: str = "succeeded", steps: int = 2) -> JobView:
    found = JobView(job="words", tenant="t", task="words", steps=steps)
    for version in range(1, steps + 1):
        found.take({"kind": "step", "data": step(version, float(version), 1.0, 1.0, 1.0, 1.0, 1.0, mismatch_kl=1e-9)})
    compared = {"low": low, "high": 0.3, "difference": 0.2, "verdict": "better by 20.0 points"}
    for version, comparison in ((0, None), (steps, compared)):
        found.take({"kind": "eval", "data": {"version": version, "reward_mean": 0.5, "comparison": comparison}})
    found.take({"kind": "ended", "data": {"state": state}})
    return found


def test_no_held_out_problem_is_trained_on(tmp_path):
    blobs = BlobStore(tmp_path)
    spec = parse_job(word_job(blobs, options()).spec)
    asked = {
        name: {json.loads(line)["messages"][-1]["content"] for line in blobs.path(getattr(spec.dataset, name)).read_bytes().splitlines()}
        for name in ("train", "eval")
    }
    assert len(asked["eval"]) == EVAL_ROWS == spec.eval.max_rows
    assert not asked["train"] & asked["eval"]


def test_it_holds_when_the_interval_lies_above_zero_and_is_told_in_words():
    found = figures(run(view(low=0.1)), options("--steps", "2"), 1500.0)
    assert (found["holds"], found["wall_s"]) == (True, 1500.0)
    assert "25 minutes" in report(found) and "better by 20.0 points" in report(found)


@pytest.mark.parametrize(("low", "state"), [(0.0, "succeeded"), (-0.1, "succeeded"), (None, "succeeded"), (0.1, "failed")])
def test_chance_or_a_job_that_did_not_succeed_do_not_hold(low, state):
    assert not figures(run(view(low=low, state=state)), options("--steps", "2"), 1.0)["holds"]


def test_a_job_that_was_never_measured_says_so():
    broken = JobView(job="words", tenant="t", task="words", steps=2)
    broken.take({"kind": "ended", "data": {"state": "failed"}})
    assert "not measured" in report(figures(run(broken), options("--steps", "2"), 1.0))
