"""The most that one step of a job can use, from its specification alone: what is held before the step may run.

One step is everything sampled for it, every resampling round included, the judges' reading and writing with their retries, the
training, and the evaluation that may follow.
"""

from __future__ import annotations

from typing import Any

from engine.grader_spec import JudgeGrader, parts_of
from engine.spec import JobSpec
from portal.billing.models import Kind

# How often the engine asks a judge about one completion before it gives up.
JUDGE_TRIES = 3


def step_tokens(spec: JobSpec) -> dict[str, int]:
    """Kind → tokens."""
    trained = spec.rollout.completions_per_step
    sampled = trained * (1 + spec.rollout.max_resamples)
    evaluated = min(spec.dataset.eval_rows, spec.eval.max_rows) if spec.dataset.eval is not None else 0
    written = _written(spec)
    return {
        Kind.PREFILL: sampled * (spec.rollout.max_prompt_tokens + spec.environment.most_added_tokens),
        Kind.SAMPLED: (sampled + evaluated) * written,
        Kind.TRAINED: trained * written * spec.train.epochs,
        Kind.JUDGE: (sampled + evaluated) * _judged(spec),
    }


def sampled_tokens(spec: JobSpec, completions: int) -> dict[str, int]:
    """Kind → tokens of so many completions that nothing is trained on: a probe's."""
    return {
        Kind.PREFILL: completions * (spec.rollout.max_prompt_tokens + spec.environment.most_added_tokens),
        Kind.SAMPLED: completions * _written(spec),
        Kind.JUDGE: completions * _judged(spec),
    }


def judged_tokens(grader: Any, read: int) -> int:
    """Judges' tokens for one grading of a completion and a row that have at most ``read`` tokens together."""
    judges = [part for _, part in parts_of(grader) if isinstance(part, JudgeGrader)]
    return sum(
        JUDGE_TRIES * (read + sum(len(text) for _, text in judge.templates()) + judge.sampling_params.max_completions_tokens)
        for judge in judges
    )


def _written(spec: JobSpec) -> int:
    """Sampled tokens of one completion at its longest."""
    told = spec.environment.most_turns * spec.rollout.max_new_tokens
    return min(told, spec.environment.max_tokens or told)


def _judged(spec: JobSpec) -> int:
    """Judges' tokens for one completion: their prompt has no more tokens than characters, the completion's and the row's aside."""
    return judged_tokens(spec.grader, spec.context_tokens)
