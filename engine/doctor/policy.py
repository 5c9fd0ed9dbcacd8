"""Is the policy still well? Entropy, lengths, distances and gradients."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from engine.doctor.figures import Eval, Step, mean
from engine.doctor.findings import Finding, found, percent

WINDOW = 10
FIRST = 5
ENTROPY_SHARE, ENTROPY_LOW = 0.15, 0.1  # of what it was; nats per token
SOLVED = 0.85  # of the highest reward: a policy that is sure because it is right is well
LENGTH_FACTOR, LENGTH_GAIN = 2.0, 0.05
CUT = 0.3
KL_HIGH = 0.5  # nats per token
MISMATCH_HIGH = 0.05
CLIPPED = 0.3
SPIKE_FACTOR, SPIKES, SPIKE_WINDOW = 8.0, 2, 20


def entropy_collapse(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    first, recent = steps[:FIRST], steps[-WINDOW:]
    before, after = mean(first, lambda step: step.entropy), mean(recent, lambda step: step.entropy)
    if len(steps) < FIRST + WINDOW or before is None or after is None or _solved(recent):
        return None
    if after > ENTROPY_LOW or after > ENTROPY_SHARE * before:
        return None
    return found(
        "entropy_collapse",
        "The model has stopped exploring",
        chart="entropy",
        steps=recent,
        evidence=f"the entropy fell to {after:.3f} nats per token from {before:.3f} at the start, and the reward is not high.",
        numbers={"before": before, "after": after},
        advice="Begin again from an earlier version with a lower learning rate, or with a higher upper clip or temperature.",
    )


def length_explosion(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    first, recent = steps[:FIRST], steps[-WINDOW:]
    if len(steps) < FIRST + WINDOW:
        return None
    before, after = fmean(step.length for step in first), fmean(step.length for step in recent)
    gain = _gain(first, recent)
    if before <= 0 or after < LENGTH_FACTOR * before or (gain is not None and gain >= LENGTH_GAIN and not _cut(recent)):
        return None
    return found(
        "length_explosion",
        "Completions grow without earning it",
        chart="length",
        steps=recent,
        evidence=f"the mean length rose from {before:.0f} to {after:.0f} tokens"
        + (f" while the reward changed by {gain:+.2f}." if gain is not None else "."),
        numbers={"before": before, "after": after, **({} if gain is None else {"reward_gain": gain})},
        advice="Check that the reward does not pay for length, and take something off for overlong completions.",
    )


def truncation(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    recent = steps[-WINDOW:]
    if len(recent) < WINDOW or not _cut(recent):
        return None
    share = fmean(step.cut for step in recent)
    return found(
        "truncation",
        "Many completions are cut off",
        chart="truncated",
        steps=recent,
        evidence=f"{percent(share)} of the completions reached the limit and were graded unfinished.",
        numbers={"share": share},
        advice="Raise the longest completion, or ask for shorter answers in the prompt.",
    )


def kl_drift(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    recent = steps[-WINDOW:]
    now = mean(recent, lambda step: step.kl)
    if len(recent) < WINDOW or now is None or now < KL_HIGH or _solved(recent):
        return None
    return found(
        "kl_drift",
        "The model has moved far from where it began",
        chart="kl",
        steps=recent,
        evidence=f"the distance to the base model is {now:.2f} nats per token, and the reward is not high.",
        numbers={"kl": now},
        advice="Raise the weight of the KL term or lower the learning rate.",
    )


def mismatch(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    recent = steps[-FIRST:]
    now = mean(recent, lambda step: step.mismatch_kl)
    if len(recent) < FIRST or now is None or now < MISMATCH_HIGH:
        return None
    return found(
        "mismatch",
        "Sampler and trainer disagree",
        chart="mismatch",
        steps=recent,
        evidence=f"their log-probabilities of the same tokens lie {now:.3f} nats per token apart.",
        numbers={"mismatch_kl": now},
        advice="This is rather the platform's fault than yours: tell your operator, and keep the correction for it on.",
    )


def clip_saturation(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    recent = steps[-WINDOW:]
    share = mean(recent, lambda step: step.clip_share)
    if len(recent) < WINDOW or share is None or share < CLIPPED:
        return None
    return found(
        "clip_saturation",
        "Most of the update is clipped away",
        chart="clip",
        steps=recent,
        evidence=f"the ratio of {percent(share)} of the tokens left the clip range.",
        numbers={"share": share},
        advice="Take fewer epochs over each batch, or lower the learning rate.",
    )


def gradient_spikes(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    """Norms far above the usual one. Steps without an update have none, and count as spikes where the gradient was not finite."""
    recent = steps[-SPIKE_WINDOW:]
    norms = [(step, step.grad_norm) for step in recent if not step.skipped and step.grad_norm is not None]
    if len(norms) < SPIKE_WINDOW // 2:
        return None
    usual = median(norm for _, norm in norms)
    spikes = [(step, norm) for step, norm in norms if norm > SPIKE_FACTOR * usual]
    if len(spikes) < SPIKES or usual <= 0:
        return None
    largest = max(norm for _, norm in spikes)
    return found(
        "gradient_spikes",
        "The gradient jumps",
        chart="gradient",
        steps=recent,
        evidence=f"{len(spikes)} gradients were more than {SPIKE_FACTOR:.0f} times as long as the usual {usual:.2g}; "
        f"the longest was {largest:.2g}.",
        numbers={"usual": usual, "largest": largest, "spikes": float(len(spikes))},
        advice="Lower the learning rate or the largest gradient norm, and look at the completions of those steps.",
    )


def overfitting(steps: Sequence[Step], evals: Sequence[Eval]) -> Finding | None:
    """The held-out reward fell from its best by more than chance allows, while the training reward went on rising."""
    evals = [one for one in evals if one.reward is not None]
    if len(evals) < 3 or not steps:
        return None
    top, last = max(evals, key=lambda one: one.reward), evals[-1]
    # Two standard errors of a share, which rewards between 0 and 1 do not exceed.
    chance = 2 * (top.reward * (1 - top.reward) / top.rows) ** 0.5 if 0 <= top.reward <= 1 else 0.0
    fall = top.reward - last.reward
    then, now = _around(steps, top.version), _around(steps, last.version)
    if fall <= max(0.03, chance) or then is None or now is None or now - then < 0.02:
        return None
    return found(
        "overfitting",
        "Better in training, worse on held-out rows",
        chart="reward",
        steps=steps[-1:],
        evidence=f"since version {top.version} the held-out reward fell from {top.reward:.3f} to {last.reward:.3f}, "
        f"while the training reward rose from {then:.3f} to {now:.3f}.",
        numbers={"best_version": float(top.version), "held_out_fall": fall, "training_rise": now - then},
        advice=f"Use version {top.version}; more and more varied prompts keep the model from learning these by heart.",
    )


def _around(steps: Sequence[Step], version: int) -> float | None:
    """The mean training reward of the steps up to this version (or the first ones)."""
    near = [step for step in steps if version - FIRST < step.step <= version] or steps[:FIRST]
    return mean(near, lambda step: step.reward)


def _solved(recent: Sequence[Step]) -> bool:
    highest = max((step.reward_max for step in recent if step.reward_max is not None), default=0.0)
    now = mean(recent, lambda step: step.reward)
    return now is not None and highest > 0 and now >= SOLVED * highest


def _gain(first: Sequence[Step], recent: Sequence[Step]) -> float | None:
    before, after = mean(first, lambda step: step.reward), mean(recent, lambda step: step.reward)
    return None if before is None or after is None else after - before


def _cut(recent: Sequence[Step]) -> bool:
    return fmean(step.cut for step in recent) >= CUT
