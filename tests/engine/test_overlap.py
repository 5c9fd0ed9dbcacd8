from __future__ import annotations

import pytest

from engine.events import Span
from engine.overlap import Overlap, overlap


def rollout(start: float, end: float) -> Span:
    return Span(phase="rollout", start=start, end=end)


def train(start: float, end: float) -> Span:
    return Span(phase="train", start=start, end=end)


def test_nothing_overlaps_where_nothing_ran():
    assert overlap({}) == Overlap(rollout_overlap=0.0, train_rollout_overlap=0.0)
    assert overlap({"a": [rollout(0, 1)]}) == Overlap(rollout_overlap=0.0, train_rollout_overlap=0.0)


def test_a_job_alone_overlaps_nothing():
    alone = overlap({"a": [rollout(0, 4), train(4, 5), rollout(5, 9), train(9, 10)]})
    assert alone == Overlap(rollout_overlap=0.0, train_rollout_overlap=0.0)


def test_the_share_of_time_with_two_rollouts_counts_to_the_last_commit():
    # Two in rollout from 2 to 6; the window goes from 0 to 10.
    spans = {"a": [rollout(0, 6), train(6, 7)], "b": [rollout(2, 8), train(8, 9), Span(phase="commit", start=9, end=10)]}
    assert overlap(spans).rollout_overlap == pytest.approx(0.4)


def test_three_rollouts_at_once_count_once():
    spans = {"a": [rollout(0, 10), train(10, 10)], "b": [rollout(0, 5)], "c": [rollout(4, 10)]}
    assert overlap(spans).rollout_overlap == pytest.approx(1.0)


def test_training_beside_another_jobs_rollout_is_shared_and_beside_its_own_is_not():
    spans = {"a": [rollout(0, 4), train(4, 8), rollout(4, 20)], "b": [rollout(5, 7), train(19, 20)]}
    # a trains 4..8 while b rolls out 5..7; b trains 19..20 while a rolls out: 2 + 1 of 5 seconds.
    assert overlap(spans).train_rollout_overlap == pytest.approx(0.6)


def test_rollouts_that_touch_do_not_overlap():
    assert overlap({"a": [rollout(0, 5), train(5, 10)], "b": [rollout(5, 10)]}).rollout_overlap == 0.0
