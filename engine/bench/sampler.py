"""The engine's own sampler, started as the engine starts it, without episodes, graders and Ray in front of it."""

from __future__ import annotations

from typing import Any

from engine.ports import AdapterRef, Snapshot
from engine.rollout.sampling import Sampled, SampleParams
from engine.rollout.worker import RolloutWorker
from engine.settings import EngineSettings


class BenchSampler:
    """In a process whose environment holds the device profile's ``vllm_env``."""

    def __init__(self, worker: RolloutWorker):
        self._worker = worker
        self._sampler: Any = worker._sampler

    @classmethod
    async def start(cls, settings: EngineSettings) -> BenchSampler:
        """Takes many seconds."""
        return cls(await RolloutWorker.start(settings))

    async def serve(self, job: str, adapter: Snapshot, *, version: int = 1, load_id: int = 1) -> AdapterRef:
        return await self._sampler.load(AdapterRef(tenant="bench", job=job, version=version, load_id=load_id), adapter)

    async def drop(self, job: str) -> None:
        await self._sampler.unload(job)

    async def draw(self, ref: AdapterRef, prompt_ids: list[int], new_tokens: int, *, seed: int) -> Sampled:
        """Exactly ``new_tokens`` tokens."""
        params = SampleParams(max_new_tokens=new_tokens, temperature=1.0, seed=seed, ignore_eos=True)
        return await self._sampler.sample(ref, prompt_ids, params)

    def counters(self) -> dict[str, Any]:
        return self._sampler.stats()

    async def close(self) -> None:
        await self._worker.close()
