"""The shared sampler and the meter of its work."""

from __future__ import annotations

import pytest

from engine.sim.clock import VirtualClock
from engine.sim.devices import BusyMeter, SharedSampler


def ends(contention: float, *work: tuple[float, str, float]) -> dict[str, float]:
    """When each piece (start, name, seconds) ends."""
    clock, done = VirtualClock(), {}
    sampler = SharedSampler(clock, contention)
    for start, name, seconds in work:
        finish = lambda name=name: done.__setitem__(name, clock.now)  # noqa: E731
        clock.call_at(start, lambda name=name, seconds=seconds, finish=finish: sampler.begin(name, seconds, finish))
    while clock.step():
        pass
    return done


def test_a_lone_rollout_takes_its_own_time():
    assert ends(1.0, (2.0, "a", 10.0)) == {"a": 12.0}


def test_without_contention_rollouts_do_not_slow_each_other():
    assert ends(0.0, (0.0, "a", 10.0), (0.0, "b", 4.0)) == {"a": 10.0, "b": 4.0}


def test_with_full_contention_batching_gains_nothing():
    assert ends(1.0, (0.0, "a", 10.0), (0.0, "b", 10.0)) == {"a": 20.0, "b": 20.0}


def test_a_rollout_speeds_up_when_another_ends():
    assert ends(1.0, (0.0, "a", 10.0), (0.0, "b", 2.0)) == pytest.approx({"b": 4.0, "a": 12.0})


def test_a_rollout_slows_down_when_another_begins():
    assert ends(0.5, (0.0, "a", 10.0), (4.0, "b", 30.0))["a"] == pytest.approx(13.0)


def test_an_aborted_rollout_never_ends_and_frees_the_sampler():
    clock, done = VirtualClock(), []
    sampler = SharedSampler(clock, 1.0)
    sampler.begin("a", 10.0, lambda: done.append(("a", clock.now)))
    sampler.begin("b", 10.0, lambda: done.append(("b", clock.now)))
    sampler.abort("a")
    sampler.abort("never there")
    while clock.step():
        pass
    assert done == [("b", 10.0)]


def test_a_job_can_begin_again_after_an_abort():
    clock, done = VirtualClock(), []
    sampler = SharedSampler(clock, 0.0)
    sampler.begin("b", 0.5, lambda: None)
    sampler.begin("a", 1.0, lambda: done.append("void"))
    sampler.abort("a")
    sampler.begin("a", 5.0, lambda: done.append(clock.now))
    while clock.step():
        pass
    assert done == [5.0]


def test_aborted_work_keeps_nothing_busy():
    clock = VirtualClock()
    sampler = SharedSampler(clock, 0.0)
    sampler.begin("a", 10.0, lambda: None)
    clock.call_at(1.0, lambda: sampler.abort("a"))
    while clock.step():
        pass
    assert sampler.meter.share(0.0, 4.0) == 0.25


def test_overlapping_work_is_busy_time_once():
    meter = BusyMeter()
    meter.began(0.0)
    meter.began(1.0)
    meter.ended(2.0)
    meter.ended(4.0)
    assert meter.share(0.0, 8.0) == 0.5


def test_only_work_inside_the_window_counts():
    meter = BusyMeter()
    meter.began(0.0)
    meter.ended(4.0)
    assert meter.share(2.0, 6.0) == 0.5


def test_work_that_still_goes_on_counts_up_to_the_end_of_the_window():
    meter = BusyMeter()
    meter.began(3.0)
    assert meter.share(0.0, 4.0) == 0.25


def test_an_empty_window_is_idle():
    assert BusyMeter().share(1.0, 1.0) == 0.0
