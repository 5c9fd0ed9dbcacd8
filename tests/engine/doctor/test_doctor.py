"""The doctor speaks up about sick runs, says why, and is quiet about healthy ones."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from engine.doctor.codes import Code
from engine.doctor.examine import DETECTORS, KEEP_FIRST, KEEP_LAST, LINGER, diagnose, is_over, shortened
from engine.doctor.figures import Eval, Part, Step
from tests.engine.doctor.histories import HEALTHY, moments, steps


def codes(history: list[Step], evals: list[Eval] | None = None) -> set[str]:
    return {finding.code for finding in diagnose(history, evals or [])}


def altered(name: str = "add", *, since: int = 30, **figures) -> list[Step]:
    """A healthy history in which these figures went wrong from step ``since`` on; a figure may be a function of the step's number."""
    return [
        step if step.step < since else replace(step, **{n: v(step.step) if callable(v) else v for n, v in figures.items()})
        for step in steps(name)
    ]


# Recorded runs


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_runs_raise_no_alarm_at_any_step(name):
    assert {n: found for n, (history, evals) in enumerate(moments(name), 1) if (found := codes(history, evals))} == {}


@pytest.mark.parametrize(
    ("name", "expected", "soonest"),
    [
        ("solved", {"all_right"}, 40),
        ("rate too high", {"all_wrong"}, 10),
        ("reward never given", {"all_wrong"}, 10),
        ("memorised too fast", {"all_wrong", "plateau", "length_explosion"}, 15),
        ("paid for length", {"all_right", "truncation", "length_explosion"}, 10),
    ],
)
def test_sick_runs_are_found_out(name, expected, soonest):
    found = [(n, codes(history, evals)) for n, (history, evals) in enumerate(moments(name), 1)]
    assert set().union(*(here for _, here in found)) == expected
    first = min(n for n, here in found if here)
    assert soonest <= first <= soonest + 10


# Each way to be sick


def overfitted() -> tuple[list[Step], list[Eval]]:
    rewards = {0: 0.5, 20: 0.8, 40: 0.7, 60: 0.55}
    history = [replace(step, reward=0.5 + step.step / 150) for step in steps("add")]
    return history, [Eval(version=version, rows=256, reward=reward) for version, reward in rewards.items()]


def one_part() -> list[Step]:
    """The format is always earned in the end, the right answer no more."""
    right = lambda step: max(0.0, 0.4 - step.step / 60)  # noqa: E731
    return [
        replace(
            step,
            parts={
                "format": Part(mean=0.5, correlation=0.99),
                "answer": Part(mean=right(step), correlation=0.1 if right(step) else None),
            },
        )
        for step in steps("add")
    ]


SICK: dict[str, tuple[list[Step], list[Eval]]] = {
    "all_right": (altered(right=1.0), []),
    "all_wrong": (altered(wrong=1.0), []),
    "entropy_collapse": (altered(entropy=0.01, reward=0.3), []),
    "length_explosion": (altered("control", length=40.0), []),
    "truncation": (altered(cut=0.4), []),
    "kl_drift": (altered(kl=2.0, reward=0.3), []),
    "mismatch": (altered(mismatch_kl=0.2), []),
    "clip_saturation": (altered(clip_share=0.5), []),
    "gradient_spikes": (altered("control", since=50, grad_norm=lambda n: 40.0 if n % 5 == 0 else 0.5), []),
    "plateau": (altered("add", since=1, reward=0.5), []),
    "overfitting": overfitted(),
    "one_part_decides": (one_part(), []),
}


def test_there_is_a_sick_history_for_every_code():
    assert set(SICK) == set(DETECTORS) == set(get_args(Code))


@pytest.mark.parametrize("code", SICK)
def test_each_sickness_is_found_with_its_evidence(code):
    history, evals = SICK[code]
    (finding,) = [finding for finding in diagnose(history, evals) if finding.code == code]
    assert finding.last_step == 60 and finding.first_step <= 60
    assert finding.evidence.startswith(f"Steps {finding.first_step} to {finding.last_step}: ") and finding.evidence.endswith(".")
    assert finding.numbers and all(isinstance(value, float) for value in finding.numbers.values())
    assert finding.title and finding.chart and finding.advice.endswith(".") and finding.advice.count(". ") == 0


@pytest.mark.parametrize("code", SICK)
def test_the_healthy_part_of_the_same_history_is_quiet(code):
    history, evals = SICK[code]
    if code not in ("plateau", "one_part_decides"):
        assert code not in codes(history[:20], evals[:1])


def test_who_is_sure_because_he_is_right_has_not_collapsed():
    assert "entropy_collapse" not in codes(altered(entropy=0.001, reward=0.97))
    assert "kl_drift" not in codes(altered(kl=2.0, reward=0.97))


def test_longer_completions_that_earn_it_are_well():
    assert "length_explosion" not in codes([replace(step, length=4.0 * step.step, reward=step.step / 100) for step in steps("control")])


def test_a_control_run_has_no_plateau():
    assert "plateau" not in codes(steps("control"))


def test_a_fall_that_chance_explains_is_no_overfitting():
    history, _ = overfitted()
    few = [Eval(version=v, rows=8, reward=r) for v, r in ((0, 0.5), (20, 0.8), (60, 0.55))]
    assert "overfitting" not in codes(history, few)


def test_an_evaluation_that_could_not_be_graded_says_nothing_of_overfitting():
    history, evals = overfitted()
    assert "overfitting" in codes(history, [*evals, Eval(version=60, rows=96, reward=None)])
    assert "overfitting" not in codes(history, [*evals[:2], Eval(version=60, rows=96, reward=None)])


def test_a_part_that_is_always_earned_is_no_victim():
    """The format is learned, so that only the answer still varies: that is how it should be."""
    learned = {"format": Part(mean=1.0, correlation=None), "answer": Part(mean=0.5, correlation=1.0)}
    assert "one_part_decides" not in codes([replace(step, parts=learned) for step in steps("add")])


def test_what_was_once_right_gets_another_advice_than_what_never_was():
    broken, never = (diagnose(steps(name), [])[0] for name in ("rate too high", "reward never given"))
    assert "learning rate" in broken.advice and "easier prompts" in never.advice


# What is not known, and what is left out


def test_figures_that_are_not_known_raise_nothing():
    unknown = dict.fromkeys(("reward", "reward_max", "entropy", "kl", "mismatch_kl", "clip_share", "grad_norm"))
    assert codes([replace(step, **unknown) for step in steps("control")], [Eval(version=0, rows=4, reward=0.0)] * 3) == set()
    assert codes([]) == set()


@pytest.mark.parametrize("name", ["add", "memorised too fast", "paid for length"])
def test_a_history_without_its_middle_says_the_same(name):
    long = [replace(step, step=n) for n, step in enumerate((steps(name) * 12)[:200], 1)]
    whole, short = [], []
    for step in long:
        whole.append(step)
        short = [*shortened(short), step]
        assert diagnose(short) == diagnose(whole)
    assert len(short) <= KEEP_FIRST + 2 * KEEP_LAST < len(whole)


def test_a_finding_is_over_only_after_some_quiet_steps():
    ill = altered(cut=0.4, since=20)[:40]
    well = [replace(step, step=n, cut=0.0) for n, step in enumerate(steps("add")[:20], 41)]
    quiet = [n for n in range(1, 20) if not DETECTORS["truncation"]([*ill, *well[:n]], [])]
    over = [n for n in range(1, 20) if is_over("truncation", [*ill, *well[:n]])]
    assert over[0] == quiet[0] + LINGER
