"""What one evaluation found out about each held-out row, and the file that keeps it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import msgspec

from engine.trajectory import Trajectory

MOST_CHARACTERS = 4000


class EvalRow(msgspec.Struct, frozen=True, kw_only=True):
    """``text``: of the last turn, at most ``MOST_CHARACTERS`` of it; ``sha256``: of all its sampled and added token ids."""

    row: int
    reward: float | None
    invalid: str | None
    finish_reason: str
    sampled_tokens: int
    text: str
    sha256: str


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    version: int
    rows: list[EvalRow]

    @property
    def rewards(self) -> dict[int, float | None]:
        return {row.row: row.reward for row in self.rows}


def evaluation(job: str, version: int, trajectories: Iterable[Trajectory]) -> Evaluation:
    return Evaluation(job=job, version=version, rows=[_row(t) for t in trajectories])


def encode(found: Evaluation) -> bytes:
    return msgspec.msgpack.encode(found)


def decode(data: bytes) -> Evaluation:
    """Raises ``msgspec.ValidationError`` on anything else."""
    return msgspec.msgpack.decode(data, type=Evaluation)


def _row(t: Trajectory) -> EvalRow:
    ids = ",".join(map(str, t.completion_ids))
    return EvalRow(
        row=t.row,
        reward=t.reward,
        invalid=t.invalid,
        finish_reason=t.finish_reason,
        sampled_tokens=t.sampled_tokens,
        text=t.text[:MOST_CHARACTERS],
        sha256=hashlib.sha256(ids.encode()).hexdigest(),
    )
