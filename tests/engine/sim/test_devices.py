"""The shared sampler, the trainer, and the meter of their work."""

from __future__ import annotations

import pytest

from engine.sim.clock import VirtualClock
from engine.sim.devices import BusyMeter, FluidSampler, FluidTrainer, Request
from engine.sim.speeds import ConstantSpeeds

ALONE = ConstantSpeeds()
TAKING_TURNS = ConstantSpeeds(seconds_per_iteration=0.0, seconds_per_sequence=1.0)
HALF = ConstantSpeeds(seconds_per_iteration=0.5, seconds_per_sequence=0.5)


class Scene:
    """A sampler, and when each request ended."""

    def __init__(self, speeds: ConstantSpeeds) -> None:
        self.clock, self.done = VirtualClock(), {}
        self.sampler = FluidSampler(self.clock, speeds)

    def ask(self, at: float, job: str, iterations: float, *, sequences: int = 1, context: float = 0.0, prefill: float = 0.0) -> None:
        request = Request(job, sequences, context, iterations + 1, prefill, lambda: self.done.__setitem__(job, self.clock.now))
        self.clock.call_at(at, lambda: self.sampler.submit([request]))

    def play(self) -> dict[str, float]:
        while self.clock.step():
            pass
        return self.done


def ends(speeds: ConstantSpeeds, *work: tuple[float, str, float]) -> dict[str, float]:
    """When each piece (start, name, iterations) ends."""
    scene = Scene(speeds)
    for piece in work:
        scene.ask(*piece)
    return scene.play()


def test_a_lone_rollout_takes_its_own_time():
    assert ends(TAKING_TURNS, (2.0, "a", 10.0)) == {"a": 12.0}


def test_without_contention_rollouts_do_not_slow_each_other():
    assert ends(ALONE, (0.0, "a", 10.0), (0.0, "b", 4.0)) == {"a": 10.0, "b": 4.0}


def test_with_full_contention_batching_gains_nothing():
    assert ends(TAKING_TURNS, (0.0, "a", 10.0), (0.0, "b", 10.0)) == {"a": 20.0, "b": 20.0}


def test_a_rollout_speeds_up_when_another_ends():
    assert ends(TAKING_TURNS, (0.0, "a", 10.0), (0.0, "b", 2.0)) == pytest.approx({"b": 4.0, "a": 12.0})


def test_a_rollout_slows_down_when_another_begins():
    assert ends(HALF, (0.0, "a", 10.0), (4.0, "b", 30.0))["a"] == pytest.approx(13.0)


def test_a_prefill_holds_up_what_decodes():
    scene = Scene(ALONE)
    scene.ask(0.0, "a", 10.0)
    scene.ask(4.0, "b", 1.0, prefill=3.0)
    assert scene.play() == pytest.approx({"a": 13.0, "b": 8.0})


def test_an_adapter_load_holds_up_what_decodes():
    scene = Scene(ALONE)
    scene.ask(0.0, "a", 10.0)
    scene.clock.call_at(4.0, lambda: scene.sampler.stall(3.0, lambda: scene.done.__setitem__("load", scene.clock.now)))
    assert scene.play() == pytest.approx({"load": 7.0, "a": 13.0})


def test_loads_are_made_one_after_another():
    scene, loaded = Scene(ALONE), []
    for seconds in (2.0, 3.0):
        scene.sampler.stall(seconds, lambda: loaded.append(scene.clock.now))
    scene.play()
    assert loaded == [2.0, 5.0]


def test_what_exceeds_the_batch_waits_inside_the_sampler():
    scene = Scene(ConstantSpeeds(max_sequences=3))
    scene.ask(0.0, "a", 10.0, sequences=2)
    scene.ask(0.0, "b", 10.0, sequences=2)
    assert scene.play() == {"a": 10.0, "b": 20.0}


def test_what_exceeds_the_cache_waits_inside_the_sampler():
    scene = Scene(ConstantSpeeds(kv_capacity_tokens=100.0))
    scene.ask(0.0, "a", 9.0, sequences=2, context=30.0)
    scene.ask(0.0, "b", 9.0, sequences=1, context=30.0)
    assert scene.play() == {"a": 9.0, "b": 18.0}


def test_a_batch_larger_than_the_sampler_takes_turns():
    scene = Scene(ConstantSpeeds(max_sequences=2))
    scene.ask(0.0, "a", 10.0, sequences=6)
    assert scene.play() == pytest.approx({"a": 30.0})


def test_an_aborted_rollout_never_ends_and_frees_the_sampler():
    scene = Scene(TAKING_TURNS)
    scene.ask(0.0, "a", 10.0)
    scene.ask(0.0, "b", 10.0)
    scene.clock.call_at(0.0, lambda: (scene.sampler.abort("a"), scene.sampler.abort("never there")))
    assert scene.play() == {"b": 10.0}


def test_a_waiting_rollout_can_be_aborted():
    scene = Scene(ConstantSpeeds(max_sequences=1))
    for name in "abc":
        scene.ask(0.0, name, 10.0)
    scene.clock.call_at(1.0, lambda: scene.sampler.abort("b"))
    assert scene.play() == {"a": 10.0, "c": 20.0}


def test_a_job_can_begin_again_after_an_abort():
    scene = Scene(ALONE)
    scene.ask(0.0, "a", 1.0)
    scene.clock.call_at(0.5, lambda: scene.sampler.abort("a"))
    scene.ask(0.5, "a", 5.0)
    assert scene.play() == {"a": 5.5}


def test_aborted_work_keeps_nothing_busy():
    scene = Scene(ALONE)
    scene.ask(0.0, "a", 10.0)
    scene.clock.call_at(1.0, lambda: scene.sampler.abort("a"))
    scene.play()
    assert scene.sampler.meter.share(0.0, 4.0) == 0.25


def test_a_slowed_sampler_takes_longer_from_then_on():
    scene = Scene(ALONE)
    scene.ask(0.0, "a", 10.0)
    scene.clock.call_at(4.0, lambda: scene.sampler.slow_down(2.0))
    assert scene.play() == {"a": 16.0}


def test_training_slots_do_not_slow_each_other():
    clock, done = VirtualClock(), []
    trainer = FluidTrainer(clock)
    for seconds in (5.0, 3.0):
        trainer.train(seconds, lambda: done.append(clock.now))
    while clock.step():
        pass
    assert done == [3.0, 5.0]


def test_a_trainer_that_is_slowed_for_a_while_loses_that_while():
    clock, done = VirtualClock(), []
    trainer = FluidTrainer(clock)
    trainer.train(10.0, lambda: done.append(clock.now))
    clock.call_at(4.0, lambda: trainer.slow_down(2.0))
    clock.call_at(10.0, lambda: trainer.slow_down(1.0))
    while clock.step():
        pass
    assert done == [13.0]


def test_overlapping_work_is_busy_time_once():
    meter = BusyMeter()
    meter.began(0.0)
    meter.began(1.0)
    meter.ended(2.0)
    meter.ended(4.0)
    assert meter.share(0.0, 8.0) == 0.5


def test_work_that_follows_at_once_is_one_span():
    meter = BusyMeter()
    for start in (0.0, 1.0, 2.0):
        meter.began(start)
        meter.ended(start + 1.0)
    assert meter.spans == [(0.0, 3.0)]


def test_a_meter_tells_when_work_comes_and_when_it_is_gone():
    heard = []
    meter = BusyMeter(heard.append)
    meter.began(0.0)
    meter.began(1.0)
    meter.ended(2.0)
    meter.ended(3.0)
    assert heard == [True, False]


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
