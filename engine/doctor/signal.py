"""Is there anything to learn from? Rewards, groups and parts of the reward."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from engine.doctor.figures import Eval, Step, mean
from engine.doctor.findings import Finding, found, percent

WINDOW = 10
FIRST = 2  # steps that show what it could do before it was trained
ALL_RIGHT = 0.95  # of the groups: a job that learns well comes near this at its very end
ALL_WRONG = 0.9
PLATEAU = 20  # steps, twice: the later ones against the earlier
GOOD_ENOUGH = 0.85  # of the highest reward seen: no plateau above
LEAST_RISE = 0.01  # of the highest reward seen
PART_EXPLAINS, PART_SILENT = 0.9, 0.05


def all_right(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    recent = steps[-WINDOW:]
    share = fmean(step.right for step in recent)
    if len(recent) < WINDOW or share < ALL_RIGHT:
        return None
    return found(
        "all_right",
        "Nothing is left to learn here",
        chart="signal",
        steps=recent,
        evidence=f"in {percent(share)} of the groups every completion was right, so they carry no signal.",
        numbers={"share": share},
        advice="Stop here and keep the best version, or go on with harder prompts.",
    )


def all_wrong(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    recent = steps[-WINDOW:]
    share = fmean(step.wrong for step in recent)
    if len(recent) < WINDOW or share < ALL_WRONG:
        return None
    before = min(step.wrong for step in steps[:FIRST])
    broken = "It could do this at the start: go back to an earlier version, and lower the learning rate."
    never = "Try the reward on a few completions by hand, then use easier prompts, larger groups or a reward that gives part marks."
    return found(
        "all_wrong",
        "No completion is ever right",
        chart="signal",
        steps=recent,
        evidence=f"in {percent(share)} of the groups every completion was wrong, so they carry no signal.",
        numbers={"share": share},
        advice=broken if before < ALL_WRONG / 2 else never,
    )


def plateau(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    """No rise from one score of steps to the next although there is room. A control run, which trains nothing, has no plateau."""
    earlier, later = steps[-2 * PLATEAU : -PLATEAU], steps[-PLATEAU:]
    if len(earlier) < PLATEAU or not any(step.learning_rate for step in later):
        return None
    before, after = mean(earlier, lambda step: step.reward), mean(later, lambda step: step.reward)
    highest = max((step.reward_max for step in later if step.reward_max is not None), default=0.0)
    if before is None or after is None or highest <= 0 or after >= GOOD_ENOUGH * highest or after - before >= LEAST_RISE * highest:
        return None
    return found(
        "plateau",
        "The reward has stopped rising",
        chart="reward",
        steps=[*earlier, *later],
        evidence=f"the mean reward went from {before:.3f} to {after:.3f} between the first and the second half.",
        numbers={"before": before, "after": after},
        advice="Look at what is still answered wrongly; a higher learning rate, more completions per prompt or easier prompts may help.",
    )


def one_part_decides(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    """One part goes with the reward, and another is (almost) never earned or has lost half of what it had."""
    recent = [step for step in steps[-WINDOW:] if step.parts]
    early = [step for step in steps[:WINDOW] if step.parts]
    if len(recent) < WINDOW or len(steps) < 2 * WINDOW:
        return None
    explains = {name: _explained(recent, name) for name in recent[-1].parts}
    top = max(explains, key=lambda name: explains[name])
    starved = [name for name in explains if name != top and _starved(early, recent, name)]
    if explains[top] < PART_EXPLAINS or not starved:
        return None
    return found(
        "one_part_decides",
        "One part of the reward decides alone",
        chart="reward",
        steps=recent,
        evidence=f"{top} explains {percent(explains[top])} of the reward's variation, while {starved[0]} is hardly earned any more.",
        numbers={"explained": explains[top], "starved_mean": _mean_of(recent, starved[0])},
        advice=f"Give {top} less weight, or make it count only where {starved[0]} is earned.",
    )


def _explained(steps: Sequence[Step], name: str) -> float:
    known = [p.correlation for step in steps if (p := step.parts.get(name)) is not None and p.correlation is not None]
    return fmean(value * abs(value) for value in known) if 2 * len(known) >= len(steps) else 0.0


def _mean_of(steps: Sequence[Step], name: str) -> float:
    return fmean([step.parts[name].mean for step in steps if name in step.parts] or [0.0])


def _starved(early: Sequence[Step], recent: Sequence[Step], name: str) -> bool:
    now, before = _mean_of(recent, name), _mean_of(early, name)
    return abs(_explained(recent, name)) < PART_EXPLAINS and (abs(now) <= PART_SILENT or now < before / 2)
