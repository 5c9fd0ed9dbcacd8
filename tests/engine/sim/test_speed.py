"""How the scheduler's speed is measured; the speed itself is a figure, not a test."""

from __future__ import annotations

from engine.core.policy import Policy
from engine.sim.speed import POLICIES, measure, microseconds, text


def test_only_the_decisions_are_timed():
    ticks = iter(range(10**6))
    assert microseconds(10, Policy(max_active=4), decisions=100, clock=lambda: float(next(ticks))) == (1e6, 1e6)


def test_every_policy_is_measured_at_every_size():
    ticks = iter(range(10**6))
    result = measure(20, decisions=50, rounds=1, clock=lambda: float(next(ticks)), simulate_seconds=lambda workload: 0.5)
    assert {name: list(by_size) for name, by_size in result["by_policy"].items()} == {name: ["20"] for name in POLICIES}
    assert (result["microseconds_per_decision"], result["flatness"]) == (1e6, 1.0)
    assert "32 jobs of 100 steps simulated in 0.5 s (gsm8k)" in text(result)
