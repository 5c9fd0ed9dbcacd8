"""Adaptive concurrency: more while the cache bears it, less when it hurts, never below one, and never twice for one burst."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from engine.core import messages as m
from engine.core.adaptive import Adaptive, Concurrency
from engine.core.policy import Policy
from tests.engine.core.house import House


class Sampler:
    """A cache that bears ``capacity`` jobs: all that are allowed roll out, and one more than it bears is preempted.

    A rollout lasts ``rollout_seconds``, so that a lowered limit takes effect only as running ones end.
    """

    def __init__(self, adaptive: Adaptive, *, capacity: float, rollout_seconds: float = 10.0) -> None:
        self.concurrency = Concurrency(adaptive)
        self.capacity = capacity
        self.rollout_seconds = rollout_seconds
        self.at = 0.0
        self.ends: list[float] = []
        self.limits: list[tuple[float, int]] = []
        self.preemptions = 0

    def run(self, seconds: float, *, jobs: int = 100) -> None:
        until = self.at + seconds
        while self.at < until:
            self.at += 0.5
            self.ends = [end for end in self.ends if end > self.at]
            while len(self.ends) < min(self.concurrency.limit, jobs):
                self.ends.append(self.at + self.rollout_seconds)
            self._sample()

    def _sample(self) -> None:
        too_many = len(self.ends) > self.capacity
        self.preemptions += too_many
        self.concurrency.observe(at=self.at, used=self.used(), waiting=0, preempted=int(too_many), rolling=len(self.ends))
        self.limits.append((self.at, self.concurrency.limit))

    def used(self) -> float:
        return min(1.0, len(self.ends) / self.capacity)

    @property
    def cuts(self) -> list[tuple[int, int]]:
        return [(old, new) for (_, old), (_, new) in pairwise(self.limits) if new < old]


def test_the_limit_grows_by_one_at_a_time_while_the_cache_has_room():
    sampler = Sampler(Adaptive(start=1), capacity=20)
    sampler.run(30)
    assert sampler.concurrency.limit > 10
    assert {new - old for (_, old), (_, new) in pairwise(sampler.limits)} == {0, 1}


def test_it_stops_growing_before_the_cache_is_full():
    sampler = Sampler(Adaptive(), capacity=20)
    sampler.run(600)
    assert (sampler.preemptions, sampler.cuts) == (0, [])
    assert 16 <= sampler.concurrency.limit <= 18


def test_a_raise_waits_until_the_last_one_shows():
    sampler = Sampler(Adaptive(start=1, settle_seconds=5), capacity=20)
    sampler.run(4.5)
    assert sampler.concurrency.limit == 1


def test_a_limit_that_nobody_reaches_is_not_raised():
    sampler = Sampler(Adaptive(start=4), capacity=100)
    sampler.run(600, jobs=3)
    assert sampler.concurrency.limit == 4


def test_preemptions_cut_the_limit():
    sampler = Sampler(Adaptive(start=20), capacity=10)
    sampler.run(0.5)
    assert sampler.concurrency.limit == 15


def test_one_burst_cuts_once_however_many_samples_it_takes():
    """The regression: jobs let in before the cut preempt until they leave, one by one, and each sample cut anew, far below what fits."""
    concurrency = Concurrency(Adaptive(start=20))
    for at, rolling in enumerate([20, 20, 19, 19, 18, 18, 17, 17], start=1):
        concurrency.observe(at=5.0 * at, used=1.0, waiting=0, preempted=3, rolling=rolling)
    assert concurrency.limit == 15


def test_a_cut_is_not_judged_before_it_has_cooled_down():
    concurrency = Concurrency(Adaptive(start=20, cooldown_seconds=5))
    for at in (1.0, 2.0, 3.0):
        concurrency.observe(at=at, used=1.0, waiting=0, preempted=3, rolling=20 if at < 2 else 15)
    assert concurrency.limit == 15


def test_a_cut_that_was_too_small_is_repeated_once_it_has_taken_effect():
    sampler = Sampler(Adaptive(start=20), capacity=5)
    sampler.run(120)
    assert sampler.cuts and sampler.concurrency.limit <= 5


def test_jobs_that_ended_since_the_last_sample_may_have_caused_what_it_reports():
    concurrency = Concurrency(Adaptive(start=8))
    concurrency.observe(at=1.0, used=0.5, waiting=0, preempted=0, rolling=8)
    concurrency.observe(at=1.5, used=0.1, waiting=0, preempted=9, rolling=1)
    assert concurrency.limit == 6


def test_a_single_job_that_is_too_large_still_runs():
    sampler = Sampler(Adaptive(start=4), capacity=0.5)
    sampler.run(300)
    assert min(limit for _, limit in sampler.limits) == 1
    assert len(sampler.ends) == 1


def test_a_queue_that_grows_beside_a_full_cache_is_pressure():
    concurrency = Concurrency(Adaptive(start=8))
    concurrency.observe(at=1.0, used=0.95, waiting=10, preempted=0, rolling=8)
    assert concurrency.limit == 6


def test_a_queue_beside_a_cache_with_room_waits_for_the_batch_not_for_memory():
    concurrency = Concurrency(Adaptive(start=8))
    concurrency.observe(at=1.0, used=0.5, waiting=10, preempted=0, rolling=8)
    assert concurrency.limit == 8


def test_a_queue_that_shrinks_is_no_pressure():
    concurrency = Concurrency(Adaptive(start=8))
    for at, waiting in ((1.0, 10), (20.0, 5)):
        concurrency.observe(at=at, used=0.95, waiting=waiting, preempted=0, rolling=4)
    assert concurrency.limit == 3


def test_what_oscillates_oscillates_slowly_and_stays_near_what_the_cache_bears():
    """A cache whose use says nothing beforehand (it jumps to full): only preemptions tell."""
    sampler = Sampler(Adaptive(start=4, room=0.999, probe_seconds=60), capacity=10.0)
    sampler._sample = lambda: (
        sampler.concurrency.observe(at=sampler.at, used=0.1, waiting=0, preempted=int(len(sampler.ends) > 10), rolling=len(sampler.ends))
        or sampler.limits.append((sampler.at, sampler.concurrency.limit))
    )
    sampler.run(1800)
    late = [limit for at, limit in sampler.limits if at > 60]
    assert len(sampler.cuts) <= 1800 / 60
    assert min(late) >= 8 and max(late) <= 11
    assert sum(late) / len(late) > 9.3


@pytest.mark.parametrize("seed", range(20))
def test_no_readings_whatever_bring_it_below_1_or_raise_it_unreached(seed):
    chance, concurrency, at = random.Random(seed), Concurrency(Adaptive()), 0.0
    for _ in range(500):
        at += chance.expovariate(1.0)
        rolling, before = chance.randint(0, 12), concurrency.limit
        reading = {"used": chance.random(), "waiting": chance.randint(0, 50), "preempted": chance.choice([0, 0, 3])}
        concurrency.observe(at=at, rolling=rolling, **reading)
        assert concurrency.limit >= 1
        assert concurrency.limit <= before + (rolling == before)


# In the scheduler


def adaptive(**changes: float) -> Policy:
    return Policy(max_active=8, kv_budget_bytes=20, kv_hold="rollout", adaptive=Adaptive(**{"start": 1, "settle_seconds": 0, **changes}))


def test_no_more_jobs_roll_out_than_the_limit_says():
    house = House(adaptive())
    house.submit("a")
    assert house.submit("b") == ["admit b"]
    assert house.rolled("a") == ["train a 0/1", "rollout b 0/1"]


def test_a_reading_with_room_lets_the_next_one_in():
    house = House(adaptive())
    house.submit("a")
    house.submit("b")
    assert house.tell(m.KvSample, used=0.1, waiting=0, preempted=0) == ["rollout b 0/1"]


def test_estimates_may_be_overcommitted_by_the_stated_factor_and_no_more():
    house = House(adaptive(start=8, overcommit=1.5))
    for job in "abcd":
        house.submit(job, kv_bytes=10)
    assert [job for job in "abcd" if house.phase(job) == "rollout"] == ["a", "b", "c"]


def test_without_it_readings_change_nothing():
    house = House(kv_budget_bytes=20)
    for job in "abc":
        house.submit(job)
    assert house.tell(m.KvSample, used=0.1, waiting=0, preempted=0) == []


def test_a_job_that_waits_for_measured_memory_is_told_so():
    house = House(adaptive())
    house.submit("a")
    house.submit("b")
    view = house.scheduler.view()["b"]
    assert view.code == "kv" and "as full as it can be" in view.reason


def test_a_limit_that_was_found_outlives_a_change_of_its_parameters():
    house = House(adaptive(start=2))
    for job in "ab":
        house.submit(job)
    house.tell(m.KvSample, used=1.0, waiting=0, preempted=5)
    house.tell(m.PolicyChanged, policy=adaptive(start=8))
    assert house.scheduler.pipeline.concurrency.limit == 1
    house.tell(m.PolicyChanged, policy=Policy(max_active=8))
    assert house.scheduler.pipeline.concurrency is None


@pytest.mark.parametrize(
    "bad",
    [{"start": 0}, {"cut": 1.0}, {"room": 0}, {"full": 1.5}, {"settle_seconds": -1}, {"probe_seconds": float("nan")}, {"overcommit": 0.5}],
)
def test_parameters_that_make_no_sense_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=f"policy.adaptive.{next(iter(bad))}"):
        Adaptive(**bad)


def test_a_policy_is_changed_field_by_field():
    policy = Policy(max_active=8).changed({"adaptive": {"start": 3}, "kv_hold": "rollout"})
    assert policy.adaptive == Adaptive(start=3)
    assert policy.changed({"adaptive": None}).adaptive is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"adaptive": {"begin": 3}}, "begin"),
        ({"adaptive": 3}, "policy.adaptive"),
        ({"adaptive": {"start": "3"}}, "policy.adaptive.start"),
        ({"kv_hold": "ever"}, "policy.kv_hold"),
        ({"barrier": "yes"}, "policy.barrier"),
        ({"max_active": 2.5}, "policy.max_active"),
        ({"no_such": 1}, "no_such"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_by_name(changes, named):
    with pytest.raises(ValueError, match=named):
        Policy(max_active=8).changed(changes)
