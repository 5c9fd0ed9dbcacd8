"""The work of one decision does not grow with the number of jobs. Counted in Python calls, so that no clock is needed."""

from __future__ import annotations

import sys

import pytest

from engine.core import messages as m
from engine.core.policy import Policy
from tests.engine.core.house import House

STEPS = 200


def calls_per_step(jobs: int, policy: Policy) -> float:
    """Python calls inside ``handle`` per whole step, with ``jobs`` open jobs of many tenants."""
    house = House(policy)
    for number in range(jobs):
        house.submit(f"j{number}", tenant=f"t{number % 50}", steps=10**6, running_cap=None if number % 3 else 2)
    running = [c for c in house.commands if isinstance(c, m.StartRollout)]
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    for turn in range(STEPS):
        command = running.pop(turn % len(running))
        key = {"at": 0.0, "job": command.job, "version": command.version, "attempt": command.attempt}
        sys.setprofile(counted)
        house.scheduler.handle(m.RolloutDone(**key))
        answer = house.scheduler.handle(m.TrainDone(**key))
        sys.setprofile(None)
        running += [c for c in answer if isinstance(c, m.StartRollout)]
    return count / STEPS


@pytest.mark.parametrize("order", ["fifo", "fair", "priority"])
@pytest.mark.parametrize("slots", [32, 10_000])
def test_a_step_costs_the_same_among_hundreds_and_among_thousands(order, slots):
    few, many = (calls_per_step(n, Policy(max_active=slots, admission_order=order)) for n in (100, 3000))
    assert many < 1.5 * few
