"""One step's batch: the rows of the version, sampled from it and from nothing else, proven, and kept in the store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from engine.adapters import SamplerAdapters
from engine.core.messages import StartRollout
from engine.data import Datasets, draw_rows
from engine.driver import Deadlines, Driver
from engine.history import JobHistory
from engine.late_rewards import LateRewards
from engine.ports import AdapterRef, RolloutPort, RolloutRequest, RolloutResult
from engine.resampling import merged, missing
from engine.steps import certify
from engine.store import Store


@dataclass(kw_only=True)
class StepSampler:
    driver: Driver
    store: Store
    datasets: Datasets
    rollout: RolloutPort
    adapters: SamplerAdapters
    deadlines: Deadlines
    late: LateRewards

    async def sample(self, job: JobHistory, command: StartRollout, *, load_id: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """(summary, certificate) of the batch, which lies in the store afterwards.

        Load ids are offsets of the journal: fresh per load, over restarts of any part.
        """
        await self.adapters.tidied(job.job)
        adapter = self.adapters.load(job, command.version, load_id=load_id)
        rounds = _Rounds(job, command, adapter, self)
        await rounds.sample(job.spec.rollout.prompts_per_step)
        for _ in range(job.spec.rollout.max_resamples):
            if not (short := await asyncio.to_thread(rounds.missing)) or not await rounds.sample(short):
                break
        return await asyncio.to_thread(self._keep, command, rounds)

    def _keep(self, command: StartRollout, rounds: _Rounds) -> tuple[dict[str, Any], dict[str, Any]]:
        result = rounds.result()
        self.store.put_rollout(command.job, command.version, command.attempt, result.batch)
        return result.summary, rounds.certificate()


class _Rounds:
    """The rounds of one attempt. Nothing of them is kept before the last: an attempt that is lost begins again at the same prompts."""

    def __init__(self, job: JobHistory, command: StartRollout, adapter: AdapterRef, parts: StepSampler):
        self._job, self._command, self._adapter, self._parts = job, command, adapter, parts
        self._place = job.next_prompt
        self._positions: set[int] = set()
        self._results: list[RolloutResult] = []
        self._certificates: list[dict[str, Any]] = []

    async def sample(self, count: int) -> bool:
        """One more round over the next ``count`` prompts; False when the dataset has no others."""
        request = await asyncio.to_thread(self._next, count)
        if not request.rows:
            return False
        parts = self._parts
        seconds = request.deadline_seconds + parts.deadlines.grace
        call = parts.driver.call(parts.rollout.rollout(request), seconds=seconds, what="rollout")
        result = await parts.late.beside(call, self._job, self._command.version)
        self._certificates.append(await asyncio.to_thread(self._certified, request, result))
        self._results.append(result)
        return True

    def missing(self) -> int:
        return missing(self._results, self._job.spec)

    def result(self) -> RolloutResult:
        spec, first = self._job.spec, self._job.next_prompt
        if not spec.rollout.max_resamples:
            return self._results[0]
        return merged(self._results, spec, first_prompt=first, prompts_drawn=self._place - first)

    def certificate(self) -> dict[str, Any]:
        """Of what will be trained on; ``sampled`` counts the completions of every round, each proven to be of this version."""
        first = self._certificates[0]
        if len(self._certificates) == 1:
            return first
        return {**first, "sampled": sum(certificate["completions"] for certificate in self._certificates)}

    def _next(self, count: int) -> RolloutRequest:
        spec, version = self._job.spec, self._command.version
        data, rollout = spec.dataset, spec.rollout
        positions, self._place = draw_rows(
            data.train_rows, rollout.prompts_per_step, spec.seed, first=self._place, count=count, without=self._positions
        )
        self._positions.update(positions)
        return RolloutRequest(
            adapter=self._adapter,
            attempt=self._command.attempt,
            spec=spec,
            rows=self._parts.datasets.rows(data.train, positions),
            seed=spec.seed,
            adapter_files=self._parts.store.adapter(self._job.job, version),
            deadline_seconds=self._parts.deadlines.rollout,
        )

    def _certified(self, request: RolloutRequest, result: RolloutResult) -> dict[str, Any]:
        numbers = {"job": request.adapter.job, "version": request.adapter.version, "attempt": request.attempt}
        loads = self._parts.adapters.ordered(request.adapter.job, request.adapter.version)
        return certify(result.batch, **numbers, spec=request.spec, rows=request.rows, loads=loads)
