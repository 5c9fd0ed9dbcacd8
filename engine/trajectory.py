"""One sampled completion, of one turn or several, with everything that training needs, and the batch file that holds a step's worth.

The encoding is msgpack through msgspec: typed, no code on load, token ids byte for byte as sampled.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """What the model called, and what came of it. ``error``: one of ``rollout.tools.KINDS``, and ``answer`` then says what went wrong."""

    tool: str
    argument: str
    answer: str
    seconds: float
    error: str | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """``sampled`` tokens of the policy's, then ``added`` tokens of the environment's. ``text`` is what was sampled, ``observation`` what
    the environment said (``added`` may be less of it, and has the chat template's own tokens).
    """

    sampled: int
    added: int
    text: str
    observation: str = ""
    call: ToolCall | None = None


class Trajectory(msgspec.Struct, frozen=True, kw_only=True):
    """``prompt_ids`` and ``completion_ids`` are the sampler's own ids, never re-tokenised.

    ``turns`` says which of ``completion_ids`` were sampled and which the environment added; empty: all of them were sampled, in one turn.
    ``logprobs``: one natural-log probability per *sampled* token, of the distribution it was sampled from (temperature applied).
    ``text``: of the last turn, which is what was graded. ``seed``: of the first.
    ``finish_reason``: "stop" (the model ended it), "length" (out of tokens), or the limit that refused another tool call:
    "calls", "seconds" or "turns".
    ``reward`` is None when grading failed (``invalid`` says why) — never 0 for "could not grade".
    """

    job: str
    policy_version: int
    attempt: int
    load_id: int
    row: int
    sample: int
    seed: int
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    text: str
    finish_reason: str
    reward: float | None
    components: dict[str, float | None] = {}
    invalid: str | None = None
    turns: list[Turn] = []

    @property
    def sampled_tokens(self) -> int:
        return sum(turn.sampled for turn in self.turns) if self.turns else len(self.completion_ids)

    @property
    def added_tokens(self) -> int:
        """Tokens of the environment: read by the model, never sampled, never trained on."""
        return sum(turn.added for turn in self.turns)

    @property
    def tool_calls(self) -> list[ToolCall]:
        return [turn.call for turn in self.turns if turn.call is not None]

    def sampled_mask(self) -> list[bool]:
        """One truth per completion token: whether the policy sampled it."""
        if not self.turns:
            return [True] * len(self.completion_ids)
        return [sampled for turn in self.turns for sampled in [True] * turn.sampled + [False] * turn.added]


class RolloutBatch(msgspec.Struct, frozen=True, kw_only=True):
    """All trajectories of (job, policy_version, attempt), ordered by (row position, sample).

    ``dropped``: groups that carried no signal and gave way to others; kept to be looked at, never trained on.
    """

    job: str
    policy_version: int
    attempt: int
    group_size: int
    trajectories: list[Trajectory]
    summary: dict[str, Any] = {}
    dropped: list[Trajectory] = []


class StaleBatch(ValueError):
    """A batch, or a trajectory inside it, that does not belong to (job, HEAD, attempt)."""


def encode(batch: RolloutBatch) -> bytes:
    return msgspec.msgpack.encode(batch)


def decode(data: bytes) -> RolloutBatch:
    """Raises ``msgspec.ValidationError`` on anything but an encoded ``RolloutBatch``."""
    return msgspec.msgpack.decode(data, type=RolloutBatch)


def check_on_policy(batch: RolloutBatch, *, job: str, version: int, attempt: int) -> None:
    """Raise ``StaleBatch`` unless the batch and every trajectory in it was sampled for exactly this step (invariant I2)."""
    wanted = (job, version, attempt)
    if (found := (batch.job, batch.policy_version, batch.attempt)) != wanted:
        raise StaleBatch(f"batch of {found}, wanted {wanted}")
    for t in (*batch.trajectories, *batch.dropped):
        if (found := (t.job, t.policy_version, t.attempt)) != wanted:
            raise StaleBatch(f"trajectory (row {t.row}, sample {t.sample}) of {found}, wanted {wanted}")
