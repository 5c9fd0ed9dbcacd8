"""All detectors over one history, and what is new since the last look.

A history may leave out its middle: no detector looks at more than the first ``KEEP_FIRST`` and the last ``KEEP_LAST`` steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.doctor import policy, signal
from engine.doctor.codes import Code
from engine.doctor.figures import Eval, Step
from engine.doctor.findings import Finding

KEEP_FIRST, KEEP_LAST = 20, 60
LINGER = 5  # a finding is over when it was true at none of the last so many steps: it must not flicker

Detector = Callable[[Sequence[Step], Sequence[Eval]], Finding | None]
DETECTORS: dict[Code, Detector] = {
    "all_right": signal.all_right,
    "all_wrong": signal.all_wrong,
    "entropy_collapse": policy.entropy_collapse,
    "length_explosion": policy.length_explosion,
    "truncation": policy.truncation,
    "kl_drift": policy.kl_drift,
    "mismatch": policy.mismatch,
    "clip_saturation": policy.clip_saturation,
    "gradient_spikes": policy.gradient_spikes,
    "plateau": signal.plateau,
    "overfitting": policy.overfitting,
    "one_part_decides": signal.one_part_decides,
}


def diagnose(steps: Sequence[Step], evals: Sequence[Eval] = ()) -> list[Finding]:
    """What is the matter after the last of ``steps`` (ascending)."""
    return [finding for code in DETECTORS if steps and (finding := DETECTORS[code](steps, evals)) is not None]


def is_over(code: Code, steps: Sequence[Step], evals: Sequence[Eval] = ()) -> bool:
    """Whether an open finding may be closed."""
    endings = (steps[: len(steps) - ago] for ago in range(min(LINGER, len(steps) - 1) + 1))
    return all(DETECTORS[code](ending, evals) is None for ending in endings)


def shortened(steps: list[Step]) -> list[Step]:
    """``steps`` without the middle that nobody looks at; the same list while it is not worth the copying."""
    return steps if len(steps) < KEEP_FIRST + 2 * KEEP_LAST else [*steps[:KEEP_FIRST], *steps[-KEEP_LAST:]]
