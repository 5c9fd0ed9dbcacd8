"""The manager's answers to those who only look: status, adapters, rollouts. Nothing here changes anything."""

from __future__ import annotations

import asyncio
import logging
import shutil
from typing import Any

import msgspec

from engine.clock import Timeline
from engine.core.scheduler import Scheduler
from engine.core.view import JobView
from engine.data import Datasets, eval_rows, position_at, step_rows
from engine.errors import NotFound
from engine.evaluator import compared, paired_rows
from engine.groups import Tokens, Wanted, chosen
from engine.history import EngineHistory, JobHistory
from engine.paired import Change
from engine.ports import RolloutPort, Row
from engine.queue_events import seconds_left
from engine.store import Store, UnknownVersion
from engine.trajectory import Trajectory, decode

logger = logging.getLogger(__name__)

BATCHES_PER_SEARCH = 25  # each is read from disk and decoded: a search over all steps goes on with the next call
ROW_VERSIONS = 200


class Reading:
    """Reads the manager's memory on its loop and the store's files in threads."""

    def __init__(
        self,
        *,
        history: EngineHistory,
        scheduler: Scheduler,
        store: Store,
        datasets: Datasets,
        rollout: RolloutPort,
        timeline: Timeline,
        stats_seconds: float,
    ):
        self._history = history
        self._scheduler = scheduler
        self._store = store
        self._datasets = datasets
        self._rollout = rollout
        self._timeline = timeline
        self._stats_seconds = stats_seconds
        self._last_stats: dict[str, Any] = {}

    def job(self, job: str) -> JobHistory:
        """Raises ``NotFound``."""
        found = self._history.jobs.get(job)
        if found is None:
            raise NotFound(f"there is no job {job}", code="job_not_found", param="job")
        return found

    def jobs(self) -> list[dict[str, Any]]:
        """One line per job that is not deleted, in the order of acceptance; seconds from now, None where nobody knows."""
        views = self._scheduler.view(self._timeline.monotonic())
        return [_line(job, views.get(job.job)) for job in self._history.jobs.values() if not job.deleted]

    def places(self) -> dict[str, Any]:
        """Who may start, and what of KV memory and slots is taken."""
        admission, concurrency = self._scheduler.admission, self._scheduler.pipeline.concurrency
        return {
            "admission": admission.mode,
            "kv": {"budget_bytes": admission.kv.budget_bytes, "reserved_bytes": admission.kv.reserved_bytes},
            "rollouts": {"running": self._scheduler.pipeline.rolling, "limit": None if concurrency is None else concurrency.limit},
            "slots": {"total": admission.slots.total, "used": len(admission.slots)},
        }

    async def measured(self) -> dict[str, Any]:
        """What nobody here remembers: ``sampler``, and of the ``disk`` that versions, batches and the journal lie on the bytes."""
        usage = await asyncio.to_thread(shutil.disk_usage, self._store.root)
        return {"disk": {"free_bytes": usage.free, "total_bytes": usage.total}, "sampler": await self.sampler()}

    async def sampler(self) -> dict[str, Any]:
        """The sampler's counters; when it does not answer soon, the last ones known, marked ``stale``."""
        try:
            async with asyncio.timeout(self._stats_seconds):
                self._last_stats = await self._rollout.stats()
                self._last_stats.pop("gradings", None)  # each job's own affair
        except Exception:
            logger.warning("the sampler's statistics are not to be had", exc_info=True)
            return {**self._last_stats, "stale": True}
        return self._last_stats

    async def adapter(self, job: str, version: int | None) -> tuple[int, dict[str, bytes]]:
        """(version, PEFT's files) of a committed version; None means the latest. Raises ``NotFound``."""
        self.job(job)
        try:
            wanted = self._store.head(job) if version is None else version
            if wanted is None:
                raise UnknownVersion(f"{job} has no version yet")
            return wanted, await asyncio.to_thread(self._store.adapter, job, wanted)
        except UnknownVersion as error:
            raise NotFound(str(error), code="version_not_found", param="version") from None

    async def servable(self, tenant: str, job: str, version: int | None) -> int:
        """The number of a committed version that is there; None means the latest. Raises ``NotFound``, also for other tenants' jobs."""
        found = self._history.jobs.get(job)
        if found is None or found.tenant != tenant or found.deleted:
            raise NotFound(f"there is no job {job}", code="job_not_found", param="job")
        versions = await asyncio.to_thread(self._store.versions, job)
        head = await asyncio.to_thread(self._store.head, job)
        wanted = head if version is None else version
        if wanted is None or head is None or wanted > head or wanted not in versions:
            message = f"{job} has no version yet" if wanted is None else f"{job} has no version {wanted}"
            raise NotFound(message, code="version_not_found", param="version")
        return wanted

    async def rollouts(self, job: str, version: int | None, *, offset: int, limit: int) -> dict[str, Any]:
        """A page of the trajectories sampled from ``version``; None means the latest that has a finished batch. Raises ``NotFound``."""
        history = self.job(job)
        try:
            return await asyncio.to_thread(self._rollouts, history, version, offset, limit)
        except UnknownVersion as error:
            raise NotFound(str(error), code="version_not_found", param="version") from None

    async def groups(
        self, job: str, version: int | None, wanted: Wanted, *, every: bool, offset: int, limit: int, tokens: bool
    ) -> dict[str, Any]:
        """{version, attempt, total, groups} of one step; with ``every`` {groups, next}: of all steps from ``version`` down, each with its
        ``version`` and ``attempt``. ``next``: the version to go on with, None at the end. Raises ``NotFound``.
        """
        history = self.job(job)
        try:
            if every:
                return await asyncio.to_thread(self._search, history, version, wanted, limit, tokens)
            return await asyncio.to_thread(self._groups, history, version, wanted, offset, limit, tokens)
        except UnknownVersion as error:
            raise NotFound(str(error), code="version_not_found", param="version") from None

    async def row_versions(self, job: str, row: int) -> dict[str, Any]:
        """{"versions"}: the newest ``ROW_VERSIONS`` versions that ``row`` was sampled from, ascending."""
        return {"versions": await asyncio.to_thread(self._row_versions, self.job(job), row)}

    async def evaluation(
        self, job: str, version: int | None, *, against: int, change: Change | None, offset: int, limit: int
    ) -> dict[str, Any]:
        """``version`` (None: the latest evaluated) against another, row by row; ``change`` picks rows. Raises ``NotFound``."""
        history = self.job(job)
        wanted = max(history.evaluations, default=0) if version is None else version
        try:
            return await asyncio.to_thread(self._evaluation, history, wanted, against, change, offset, limit)
        except UnknownVersion as error:
            raise NotFound(str(error), code="evaluation_not_found", param="version") from None

    def _evaluation(self, job: JobHistory, version: int, against: int, change: Change | None, offset: int, limit: int) -> dict[str, Any]:
        rows = paired_rows(self._store, job, version, against=against)
        chosen = [row for row in rows if change in (None, row["change"])]
        page = chosen[offset : offset + limit]
        prompts = self._prompts_of_eval(job)
        return {
            "version": version,
            "against": against,
            "comparison": compared(self._store, job, version, against=against),
            "total": len(chosen),
            "rows": [{**row, "prompt": prompts.get(row["row"], "")} for row in page],
        }

    def _prompts_of_eval(self, job: JobHistory) -> dict[int, str]:
        spec = job.spec
        found = self._datasets.rows(spec.dataset.eval, eval_rows(spec.dataset.eval_rows, spec.eval.max_rows))
        return {row.row: _prompt(row) for row in found}

    def _rollouts(self, job: JobHistory, version: int | None, offset: int, limit: int) -> dict[str, Any]:
        version, attempt = self._finished_batch(job, version)
        batch = decode(self._store.read_rollout(job.job, version, attempt))
        prompts = self._prompts(job, version, batch.summary)
        page = batch.trajectories[offset : offset + limit]
        return {
            "version": version,
            "attempt": attempt,
            "total": len(batch.trajectories),
            "trajectories": [_trajectory(t, prompts.get(t.row, "")) for t in page],
        }

    def _groups(self, job: JobHistory, version: int | None, wanted: Wanted, offset: int, limit: int, tokens: bool) -> dict[str, Any]:
        version, attempt = self._finished_batch(job, version)
        found = self._of_batch(job, version, attempt, wanted, tokens)
        return {"version": version, "attempt": attempt, "total": len(found), "groups": found[offset : offset + limit]}

    def _search(self, job: JobHistory, version: int | None, wanted: Wanted, limit: int, tokens: bool) -> dict[str, Any]:
        newest = job.version if version is None else min(version, job.version)
        found: list[dict[str, Any]] = []
        for candidate in range(newest, max(-1, newest - BATCHES_PER_SEARCH), -1):
            if (attempt := self._store.ready_attempt(job.job, candidate)) is not None:
                groups = self._of_batch(job, candidate, attempt, wanted, tokens)
                found += [{**group, "version": candidate, "attempt": attempt} for group in groups]
            if len(found) >= limit:
                break
        # A step is never cut in two: what is over the limit comes with it.
        return {"groups": found, "next": candidate - 1 if candidate > 0 else None}

    def _of_batch(self, job: JobHistory, version: int, attempt: int, wanted: Wanted, tokens: bool) -> list[dict[str, Any]]:
        batch = decode(self._store.read_rollout(job.job, version, attempt))
        known = Tokens.of(batch, self._store.read_mismatch(job.job, version, attempt)) if tokens else None
        return chosen(batch, job.spec, self._prompts(job, version, batch.summary), wanted, tokens=known)

    def _row_versions(self, job: JobHistory, row: int) -> list[int]:
        """By the order of prompts where it is fixed; where groups are resampled, by looking into the newest batches."""
        spec = job.spec
        newest_first = range(job.version, -1, -1)
        if spec.rollout.max_resamples:
            newest_first = newest_first[:ROW_VERSIONS]
            attempts = ((version, self._store.ready_attempt(job.job, version)) for version in newest_first)
            batches = ((version, decode(self._store.read_rollout(job.job, version, attempt))) for version, attempt in attempts if attempt)
            return sorted(version for version, batch in batches if any(t.row == row for t in (*batch.trajectories, *batch.dropped)))
        file = self._datasets.file(spec.dataset.train)
        found = [v for v in newest_first if any(r.row == row for r in file.rows(self._step_positions(job, v))) and self._has_batch(job, v)]
        return sorted(found[:ROW_VERSIONS])

    def _step_positions(self, job: JobHistory, version: int) -> list[int]:
        spec = job.spec
        return step_rows(spec.dataset.train_rows, spec.rollout.prompts_per_step, spec.seed, version)

    def _has_batch(self, job: JobHistory, version: int) -> bool:
        return self._store.ready_attempt(job.job, version) is not None

    def _finished_batch(self, job: JobHistory, version: int | None) -> tuple[int, int]:
        newest_first = range(job.version, -1, -1) if version is None else [version]
        for candidate in newest_first:
            if (attempt := self._store.ready_attempt(job.job, candidate)) is not None:
                return candidate, attempt
        raise UnknownVersion(f"{job.job} has no finished rollout" + ("" if version is None else f" of version {version}"))

    def _prompts(self, job: JobHistory, version: int, summary: dict[str, Any]) -> dict[int, str]:
        """The text of each row of the step: the user's words, without the chat template."""
        spec = job.spec
        per_step = spec.rollout.prompts_per_step
        first, drawn = summary.get("first_prompt"), summary.get("prompts_drawn")
        places = range(version * per_step, (version + 1) * per_step) if first is None else range(first, first + drawn)
        positions = list({position_at(spec.dataset.train_rows, per_step, spec.seed, place): None for place in places})
        rows = self._datasets.rows(spec.dataset.train, positions)
        return {row.row: _prompt(row) for row in rows}


def _prompt(row: Row) -> str:
    return "\n\n".join(message["content"] for message in row.messages)


def _line(job: JobHistory, view: JobView | None) -> dict[str, Any]:
    return {
        "job": job.job,
        "tenant": job.tenant,
        "state": job.state,
        "phase": view.phase if view else "",
        "version": job.version,
        "steps": job.spec.train.steps,
        "position": view.position if view else None,
        "reason": _reason(job, view),
        **(seconds_left(view) if view else {"next_seconds": None, "eta_seconds": None}),
    }


def _reason(job: JobHistory, view: JobView | None) -> str:
    if job.ended is not None:
        return job.ended["reason"]
    if view is not None:
        return view.reason
    return "waits for its base model" if job.waiting_code == "model" else "its first version is being made"


def _trajectory(t: Trajectory, prompt: str) -> dict[str, Any]:
    return {
        "row": t.row,
        "sample": t.sample,
        "prompt": prompt,
        "text": t.text,
        "reward": t.reward,
        "components": t.components,
        "finish_reason": t.finish_reason,
        "prompt_ids": t.prompt_ids,
        "completion_ids": t.completion_ids,
        "logprobs": t.logprobs,
        "invalid": t.invalid,
        "turns": [msgspec.to_builtins(turn) for turn in t.turns],
    }
