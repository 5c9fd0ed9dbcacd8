"""Where a new manager begins: the journal's history, brought into line with what is on the disk.

The disk is ahead of the journal by at most one commit per job (the crash came between HEAD and the ``step`` event); the step's data lies
with the version, so the event is written now, once. Anything else that differs ends the job: guessing would risk a version that never was.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.history import EngineHistory, JobHistory
from engine.journal import Journal
from engine.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class LostStep:
    """A committed step whose event is missing: its ``StepData``, and when it was made (UTC epoch seconds)."""

    data: dict[str, Any]
    committed_at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """One open job as the disk has it. ``head`` None: version 0 is still to be made. ``broken``: why it cannot go on."""

    head: int | None
    lost_step: LostStep | None = None
    ready: bool = False
    broken: str | None = None


def replay(journal: Journal) -> EngineHistory:
    """The state that all events together say."""
    history = EngineHistory()
    for event in journal.replay():
        history.apply(event.job, event.kind, event.data, event.at)
    return history


def inspect(job: JobHistory, store: Store) -> Found:
    """Compare an open job's history with its HEAD and its batches."""
    head = store.head(job.job)
    if head is None:
        broken = f"its versions are gone; the journal knows {job.version}" if job.version else None
        return Found(head=None, broken=broken)
    if head == job.version + 1:
        stored = store.step(job.job, head)
        return Found(head=head, lost_step=LostStep(data=stored["data"], committed_at=stored["committed_at"]))
    if head != job.version:
        return Found(head=head, broken=f"the journal says version {job.version}, the store says {head}")
    ready = job.ready is not None and store.ready_attempt(job.job, head) == job.ready["attempt"]
    return Found(head=head, ready=ready)
