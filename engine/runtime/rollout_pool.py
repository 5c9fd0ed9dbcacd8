"""The manager's ``RolloutPort``: N rollout actors behind one door.

Each replica has one task that follows its life: claim (answers when the sampler is up) → hold (answers never, fails at death) → again. A
call waits for a live replica, so a restart costs its callers the work that died with the replica and nothing more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import ray

from engine.ports import EvalRequest, EvalResult, JudgeAnswer, JudgeQuestion, PortError, RolloutRequest, RolloutResult
from engine.rollout import late, spread
from engine.runtime.calls import Died, Overdue, answer
from engine.runtime.fence import Superseded
from engine.runtime.readiness import Readiness

logger = logging.getLogger(__name__)

PART = "sampler"
LOADING = "loading the base model into the sampler…"
GRACE_SECONDS = 15.0  # a worker ends its own calls at their deadline; one that is later than this is stuck
SLOWEST_RESTART_SECONDS = 30.0


@dataclass(kw_only=True, eq=False)
class _Replica:
    index: int
    handle: Any
    process_id: int = 0
    alive: asyncio.Event = field(default_factory=asyncio.Event)
    outstanding: int = 0
    heard_at: float | None = None  # on the loop's clock: its last answer to anything

    async def stats(self, deadline_seconds: float) -> dict[str, Any]:
        found = await answer(self.handle.stats.remote(), deadline_seconds=deadline_seconds, what=f"sampler {self.index}: stats")
        self.heard()
        return found

    def heard(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()


class RolloutPool:
    """Raises ``PortError`` as ports do. ``call_deadline_seconds`` bounds the short calls, ``start_deadline_seconds`` a sampler's start."""

    def __init__(
        self, handles: list[Any], readiness: Readiness, *, epoch: int, call_deadline_seconds: float, start_deadline_seconds: float
    ):
        self._replicas = [_Replica(index=i, handle=handle) for i, handle in enumerate(handles)]
        self._readiness = readiness
        self._epoch = epoch
        self._call_deadline = call_deadline_seconds
        self._start_deadline = start_deadline_seconds
        self._any_alive = asyncio.Condition()
        self._last: dict[str, int] = {}
        self._followers = [asyncio.get_running_loop().create_task(self._follow(replica)) for replica in self._replicas]

    async def close(self) -> None:
        for task in self._followers:
            task.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)

    async def rollout(self, request: RolloutRequest) -> RolloutResult:
        """The prompts are spread over the live replicas. When one part fails, all do: whoever asked aborts what is left of them."""
        replicas = await self._live(request.adapter.job)
        shares = spread.parts(request, len(replicas))
        works = [asyncio.ensure_future(self._work("rollout", share, on)) for share, on in zip(shares, replicas, strict=False)]
        try:
            results = await asyncio.gather(*works)
        finally:
            for work in works:
                work.cancel()
        return results[0] if len(results) == 1 else await asyncio.to_thread(spread.joined, results)

    async def evaluate(self, request: EvalRequest) -> EvalResult:
        return await self._work("evaluate", request, (await self._live(request.adapter.job))[0])

    async def judge(self, question: JudgeQuestion) -> JudgeAnswer:
        replica = self._idlest()
        return await answer(
            replica.handle.judge.remote(question), deadline_seconds=self._call_deadline, what=f"sampler {replica.index}: judge"
        )

    async def prompt_tokens(self, chats: list[list[dict[str, str]]]) -> list[int]:
        replica = self._idlest()
        what = f"sampler {replica.index}: measuring prompts"
        return await answer(replica.handle.prompt_tokens.remote(chats), deadline_seconds=self._call_deadline, what=what)

    def _idlest(self) -> _Replica:
        if not (live := self._alive()):
            raise PortError("no sampler is up")
        return min(live, key=lambda r: r.outstanding)

    async def abort(self, job: str) -> None:
        await self._everywhere("abort", job)

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        await self._everywhere("unload", job, keep_version)
        if keep_version is None:
            self._last.pop(job, None)

    async def stats(self) -> dict[str, Any]:
        """Numbers summed over the replicas, those by tenant too; ``kv_used``, a share, is their mean.

        ``gradings`` of a job are those of all its parts.
        """
        live = self._alive()
        answers = await asyncio.gather(*(replica.stats(self._call_deadline) for replica in live))
        total: Counter[str] = Counter()
        for stats in answers:
            total.update({name: value for name, value in stats.items() if isinstance(value, (int, float))})
        if answers and "kv_used" in total:
            total["kv_used"] /= len(answers)
        parts = [stats.get("gradings", {}) for stats in answers]
        gradings = {job: late.added(part[job] for part in parts if job in part) for job in dict.fromkeys(chain(*parts))}
        held = sum((Counter(stats.get("kv_tokens", {})) for stats in answers), Counter[str]())
        return {"replicas": len(self._replicas), "replicas_alive": len(live), **total, "kv_tokens": dict(held), "gradings": gradings}

    def workers(self) -> list[dict[str, Any]]:
        now = asyncio.get_running_loop().time()
        return [
            {
                "name": f"sampler {replica.index}",
                "kind": "sampler",
                "alive": replica.alive.is_set(),
                "busy": replica.outstanding,
                "process": replica.process_id,
                "heard_seconds": None if replica.heard_at is None else now - replica.heard_at,
            }
            for replica in self._replicas
        ]

    async def _work(self, method: str, request: RolloutRequest | EvalRequest, replica: _Replica) -> Any:
        what = f"sampler {replica.index}: {method} of {request.adapter.name}"
        process_id = replica.process_id
        replica.outstanding += 1
        try:
            ref = getattr(replica.handle, method).remote(self._epoch, request)
            found = await answer(ref, deadline_seconds=request.deadline_seconds + GRACE_SECONDS, what=what)
            replica.heard()
            return found
        except Died:
            if replica.process_id == process_id:  # not its successor: the follower may have been quicker
                await self._set_alive(replica, False)
            raise
        except Overdue:
            self._kill(replica, f"{what} is overdue")
            raise
        finally:
            replica.outstanding -= 1

    def _alive(self) -> list[_Replica]:
        return [replica for replica in self._replicas if replica.alive.is_set()]

    async def _live(self, job: str) -> list[_Replica]:
        """The live replicas, once there is one: the least busy first; among equals the one that knows this job's last adapter."""
        async with self._any_alive:
            try:
                async with asyncio.timeout(self._start_deadline):
                    await self._any_alive.wait_for(self._alive)
            except TimeoutError:
                raise PortError(f"no sampler came up within {self._start_deadline:g} s") from None
        live = self._alive()
        live.sort(key=lambda r: (r.outstanding, r.index != self._last.get(job)))
        self._last[job] = live[0].index
        return live

    async def _everywhere(self, method: str, job: str, *rest: Any) -> None:
        """A dead replica has nothing to abort or unload."""
        calls = [
            answer(
                getattr(r.handle, method).remote(self._epoch, job, *rest),
                deadline_seconds=self._call_deadline,
                what=f"sampler {r.index}: {method} of {job}",
            )
            for r in self._replicas  # also those not known to be alive: they may be, and a starting one answers at once
        ]
        for result in await asyncio.gather(*calls, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, Died):
                raise result

    async def _follow(self, replica: _Replica) -> None:
        restart_seconds = 1.0
        while True:
            try:
                await self._claim(replica)
                restart_seconds = 1.0
                await answer(replica.handle.hold.remote(), deadline_seconds=None, what=f"sampler {replica.index}")
            except Died as error:
                logger.warning("%s; waiting for its restart", error.reason)
                await self._set_alive(replica, False)
            except Superseded as error:
                logger.error("%s: this manager follows no sampler any more", error.reason)
                return
            except PortError as error:
                await self._set_alive(replica, False, failure=error.reason)
                self._kill(replica, error.reason)
                await asyncio.sleep(restart_seconds)
                restart_seconds = min(2 * restart_seconds, SLOWEST_RESTART_SECONDS)

    async def _claim(self, replica: _Replica) -> None:
        what = f"sampler {replica.index}: start"
        replica.process_id = await answer(replica.handle.claim.remote(self._epoch), deadline_seconds=self._start_deadline, what=what)
        replica.heard()
        logger.info("sampler %d is up as process %d", replica.index, replica.process_id)
        await self._set_alive(replica, True)

    async def _set_alive(self, replica: _Replica, alive: bool, *, failure: str | None = None) -> None:
        async with self._any_alive:
            (replica.alive.set if alive else replica.alive.clear)()
            self._any_alive.notify_all()
        up = bool(self._alive())
        self._readiness.set(PART, None if up else LOADING, failure=None if up else failure)

    def _kill(self, replica: _Replica, reason: str) -> None:
        logger.error("killing sampler %d: %s", replica.index, reason)
        ray.kill(replica.handle, no_restart=False)
