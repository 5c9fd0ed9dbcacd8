"""The engine's event stream: the envelope, the kinds, and what each kind carries.

Stored first, announced after. ``offset`` counts every event of one engine's journal from 1 and is the reader's cursor; ``seq`` counts one
job's events from 1 without gap (0 for events that belong to no job). Readers keep kinds they do not know; changes only add.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict

SCHEMA = 1

# kind → what `data` holds. Seconds are monotonic durations; only `at` (and the spans' stamps) cross processes.
KINDS = {
    "accepted": "the whole Submission as JSON; kv_bytes; weights_sha256 of the base model; software; warm_start with adapter_sha256",
    "waiting": "reason (human text), code (kv | slots | tenant_cap …), position (1 = next), next_seconds and eta_seconds (None: not known)",
    "admitted": "the job holds a place: slots_used, kv_reserved_bytes",
    "rollout_started": "version, attempt",
    "rollout_ready": "version, attempt, summary (see RolloutSummary)",
    "rollout_lost": "version, attempt, reason, attribution: it will be redone under the next attempt",
    "train_started": "version, attempt",
    "train_lost": "version, attempt, reason, attribution: it will be redone from the same batch",
    "step": "StepData",
    "eval_started": "version: its evaluation uses the adapter load that this event's offset names, unless a rollout has one",
    "eval": "EvalData",
    "finding": "doctor.findings.Finding: what the doctor found, with its evidence; stands until finding_over of the same code",
    "finding_over": "code, step: it was true at none of the last steps",
    "pause_requested": "reason; code where the engine asks for it itself (no_signal, or a finding's)",
    "paused": "version; reason where the engine asked for it itself",
    "resumed": "version",
    "stop_requested": "outcome, reason, attribution",
    "priority": "priority",
    "warning": "code, message, advice; step or version where it speaks of one; late, graded, completions of gradings that time out",
    "version_deleted": "version: its files are gone for good, the other versions stay",
    "completions_deleted": "{}: what the ended job sampled is gone for good, its versions stay",
    "deleted": "{}: versions and batches of the ended job are gone, its history stays",
    "policy": "changes: fields of the scheduling policy; usual: those of them that are now as the engine is set up (belongs to no job)",
    "admission": "mode (open | paused | drain; belongs to no job)",
    "ended": "state (succeeded | failed | cancelled), reason, attribution, version, ttfs_seconds, tpts_seconds, completion_seconds",
}


class _Data(BaseModel):
    # Readers must survive a newer engine: unknown fields are kept, not refused.
    model_config = ConfigDict(extra="allow", frozen=True)


class Event(_Data):
    schema_version: int = SCHEMA
    engine: str
    epoch: int
    offset: int
    job: str
    seq: int
    kind: str
    at: AwareDatetime
    data: dict[str, Any]


class Span(_Data):
    """One phase of a step in UTC epoch seconds, derived from one process's monotonic clock."""

    phase: Literal["wait_rollout", "rollout", "wait_train", "train", "commit"]
    start: float
    end: float


class PartFigures(_Data):
    """Of one component of the reward, over the completions that it applies to. ``correlation``: with the reward; None: one of both is
    constant.
    """

    mean: float
    std: float
    correlation: float | None


class RolloutSummary(_Data):
    """Of everything that was sampled for a step; counts are of completions and groups, lengths of sampled tokens.

    Rewards are over valid gradings, and None when there is none: what could not be graded is not 0.
    """

    completions: int
    reward_mean: float | None
    reward_std: float | None
    reward_min: float | None
    reward_max: float | None
    invalid: int
    invalid_reason: str = ""  # the most frequent one of those that could not be graded
    truncated: int
    groups: int
    groups_all_right: int
    groups_all_wrong: int
    length_mean: float
    length_max: int
    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int
    judge_tokens: int = 0  # read and written by judges, whichever model they are
    env_tokens: int = 0  # what environments added between turns; prefill, like prompts
    turns_mean: float = 1.0
    finish_reasons: dict[str, int] = {}  # why completions ended, see engine.trajectory; empty: an engine that did not count them
    tool_calls: int = 0
    tool_failures: dict[str, int] = {}  # by kind: engine.rollout.tools.KINDS
    tool_seconds: float = 0.0  # of all calls together; they overlap
    parts: dict[str, PartFigures] = {}  # of a reward that has several, by name
    first_prompt: int | None = None  # the step's place in the endless order of prompts, where groups may be resampled
    prompts_drawn: int | None = None  # how many places it took; None: prompts_per_step
    resample_rounds: int = 0
    groups_dropped: int = 0  # sampled and paid for, but not trained on: they carried no signal, and others took their place
    rollout_seconds: float
    env_seconds: float
    reward_seconds: float


class StepData(_Data):
    """One committed training step. ``version`` is the version that this step committed (1-based: the first step commits 1).

    A figure is None where it was not a finite number (a step skipped as "nonfinite"): broken must look broken, not zero.
    """

    step: int
    version: int
    trained_from: int
    attempt: int
    rollout: RolloutSummary
    certificate: dict[str, Any]  # completions, on_policy, version, load_id, mismatch_kl, max_ratio
    loss: float | None  # None: not finite
    grad_norm: float | None
    entropy: float | None
    clip_share: float | None  # of the differentiated tokens, below or above the ratio's range together
    clip_low_share: float | None = None
    clip_high_share: float | None = None
    importance_capped_share: float | None = None  # where the sampler-to-trainer correction met its cap
    mismatch_kl: float | None  # from the sampler, in nats per token
    max_ratio: float | None = None  # the largest π_trainer / π_sampler of a token, or its inverse
    base_kl: float | None = None  # from the base model, in nats per token; None: the job does not ask for it
    overlong_penalty: float | None = None  # mean of what completions lost for their length, 0 or less; not part of the rewards shown
    learning_rate: float  # of this step
    updates: int | None = None  # optimizer updates in this step
    skipped: str | None  # None, "no_signal" or "nonfinite": committed without an update
    tokens: dict[str, int]  # prefill, sampled, judge, trained
    attribution: Literal["user", "reward", "platform"]
    seconds: dict[str, float]  # wait_rollout, rollout, env, reward, wait_train, train, commit
    spans: list[Span]
    adapter_sha256: str


class EvalData(_Data):
    version: int
    rows: int
    comparison: dict[str, Any] | None = None  # paired.Comparison with version 0 (`against`), and its verdict in words; None for version 0
    best: int | None = None  # the version with the highest held-out reward so far
    reward_mean: float | None  # over valid gradings; None: nothing could be graded
    invalid: int
    temperature: float
    sampled_tokens: int
    seconds: float
    judge_tokens: int = 0
