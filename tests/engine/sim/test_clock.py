"""Virtual time."""

from __future__ import annotations

import pytest

from engine.sim.clock import VirtualClock


def rung(*alarms: tuple[float, str]) -> list[tuple[float, str]]:
    clock, heard = VirtualClock(), []
    for at, name in alarms:
        clock.call_at(at, lambda name=name: heard.append((clock.now, name)))
    while clock.step():
        pass
    return heard


def test_alarms_ring_in_the_order_of_time():
    assert rung((3.0, "late"), (1.0, "early")) == [(1.0, "early"), (3.0, "late")]


def test_alarms_of_one_second_ring_in_the_order_in_which_they_were_set():
    assert rung((1.0, "b"), (1.0, "a")) == [(1.0, "b"), (1.0, "a")]


def test_a_cancelled_alarm_does_not_ring():
    clock, heard = VirtualClock(), []
    clock.call_in(1.0, lambda: heard.append("no")).cancel()
    assert (clock.step(), heard, clock.now) == (False, [], 0.0)


def test_an_alarm_cannot_be_set_in_the_past():
    clock = VirtualClock()
    clock.call_at(5.0, lambda: None)
    clock.step()
    with pytest.raises(ValueError, match="too late"):
        clock.call_at(4.0, lambda: None)
