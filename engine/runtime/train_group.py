"""The manager's ``TrainPort``: W rank actors that form one process group.

The group lives and dies as one: when a rank dies, or is stuck beyond its deadline, all ranks are started anew and gather again. A new
manager adopts a whole group as it finds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import ray

from engine import logs
from engine.ports import PortError, Snapshot, TrainRequest, TrainResult
from engine.runtime.calls import Died, Overdue, Raised, answer
from engine.runtime.fence import Superseded
from engine.runtime.readiness import Readiness
from engine.spec import JobSpec

logger = logging.getLogger(__name__)

PART = "trainer"
LOADING = "loading the base model into the trainer…"
GRACE_SECONDS = 15.0
KILL_SECONDS = 20.0
CLAIM_AGAIN_SECONDS = 0.2
SLOWEST_RESTART_SECONDS = 30.0


class TrainGroup:
    """One call at a time, on all ranks in the same order. Raises ``PortError`` as ports do. ``part``: its name among the ready parts."""

    def __init__(
        self,
        handles: list[Any],
        readiness: Readiness,
        *,
        epoch: int,
        call_deadline_seconds: float,
        start_deadline_seconds: float,
        part: str = PART,
    ):
        self._handles = handles
        self._readiness = readiness
        self._part = part
        self.outstanding = 0
        self._heard_at: float | None = None
        self._epoch = epoch
        self._call_deadline = call_deadline_seconds
        self._start_deadline = start_deadline_seconds
        self._turn = asyncio.Lock()
        self._ahead: tuple[tuple[str, int, int], asyncio.Future[Any]] | None = None  # what the ranks were sent before its turn
        self._formed = asyncio.Event()
        self._broken = asyncio.Event()
        self._follower = asyncio.get_running_loop().create_task(self._follow())

    async def close(self) -> None:
        self._follower.cancel()
        await asyncio.gather(self._follower, return_exceptions=True)

    async def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        async with self._in_turn():
            what = f"trainer: fresh adapter of {job}"
            return await self._in_whole("fresh", job, spec, deadline_seconds=self._call_deadline, what=what)

    async def prepare(self, request: TrainRequest) -> None:
        """Nothing comes of it while the ranks gather."""
        if self._formed.is_set():
            what = f"trainer: preparing {request.job} from version {request.version}"
            sending = asyncio.ensure_future(
                self._on_all("prepare", self._payload(request), deadline_seconds=self._call_deadline, what=what)
            )
            self._ahead = (request.key, sending)
            await sending

    async def step(self, request: TrainRequest) -> TrainResult:
        what = f"trainer: step of {request.job} from version {request.version}"
        async with self._in_turn():
            prepared = await self._is_there(request.key)
            order = ("step_prepared", request.key) if prepared else ("step", self._payload(request))
            return await self._in_whole(*order, deadline_seconds=request.deadline_seconds + GRACE_SECONDS, what=what)

    def _payload(self, request: TrainRequest) -> Any:
        return request if len(self._handles) == 1 else ray.put(request)  # one copy for all ranks

    async def _is_there(self, key: tuple[str, int, int]) -> bool:
        """Whether every rank holds that request: one that did not would leave the others in a collective."""
        if self._ahead is None or self._ahead[0] != key:
            return False
        ahead = self._ahead
        if not ahead[1].done():
            await asyncio.wait([ahead[1]])
        if self._ahead is not ahead:  # meanwhile another was sent, and has its place at the ranks
            return False
        self._ahead = None
        return not ahead[1].cancelled() and ahead[1].exception() is None

    @contextlib.asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[None]:
        """The group is whole, and nobody else has it."""
        self.outstanding += 1
        try:
            async with self._turn:
                await self._wait_formed()
                yield
        finally:
            self.outstanding -= 1

    async def _in_whole(self, method: str, *args: Any, deadline_seconds: float, what: str) -> Any:
        """The first rank's answer. A group that lost one gathers anew."""
        try:
            first, *_ = await self._on_all(method, dict(logs.ids()), *args, deadline_seconds=deadline_seconds, what=what)
            return first
        except (Died, Overdue, Raised) as error:
            # Where a rank was lost, the others' collectives fail before Ray knows of it, and would fail again with the next step.
            if not isinstance(error, Raised) or len(self._handles) > 1:
                self._formed.clear()
                self._broken.set()
            raise PortError(error.reason) from error

    async def _wait_formed(self) -> None:
        try:
            async with asyncio.timeout(self._start_deadline):
                await self._formed.wait()
        except TimeoutError:
            raise PortError(f"the trainer did not come up within {self._start_deadline:g} s") from None

    async def _on_all(self, method: str, *args: Any, deadline_seconds: float, what: str) -> list[Any]:
        """Every rank's answer; the first failure is raised at once, since the other ranks may wait in a collective for ever."""
        refs = [getattr(handle, method).remote(self._epoch, *args) for handle in self._handles]
        found = await asyncio.gather(*(answer(ref, deadline_seconds=deadline_seconds, what=what) for ref in refs))
        self._heard_at = asyncio.get_running_loop().time()
        return found

    def workers(self) -> list[dict[str, Any]]:
        """One line for the group: its ranks live and die together."""
        heard = None if self._heard_at is None else asyncio.get_running_loop().time() - self._heard_at
        known = {"alive": self._formed.is_set(), "busy": self.outstanding, "ranks": len(self._handles), "heard_seconds": heard}
        return [{"name": self._part, "kind": "trainer", **known}]

    async def _follow(self) -> None:
        pause_seconds = 1.0
        while True:
            try:
                await self._form()
                pause_seconds = 1.0
                await self._until_broken()
                logger.warning("a trainer rank died or is stuck; the group starts anew")
            except Superseded as error:
                logger.error("%s: this manager follows no trainer any more", error.reason)
                return
            except Died as error:
                logger.warning("%s", error.reason)
            except PortError as error:
                logger.error("trainer: %s", error.reason)
                self._readiness.set(self._part, LOADING, failure=error.reason)
                await asyncio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, SLOWEST_RESTART_SECONDS)
            self._formed.clear()
            self._ahead = None
            await self._replace(self._handles)

    async def _form(self) -> None:
        """Adopt the group if all ranks are in the same one and can train; else gather a new one from fresh ranks."""
        states = await self._claim(self._handles)
        adopt = len(set(states)) == 1 and states[0][1]
        if not adopt:
            used = [handle for handle, (generation, _) in zip(self._handles, states, strict=True) if generation]
            await self._replace(used)
            await self._claim(used)
            await self._gather(generation=self._epoch)
        self._broken.clear()
        self._formed.set()
        self._readiness.set(self._part, None)
        logger.info("trainer group of %d ranks %s", len(self._handles), "adopted" if adopt else "formed")

    async def _claim(self, handles: list[Any]) -> list[tuple[int, bool]]:
        """Each rank's state (see ``TrainActor.claim``) once it is up. Raises ``PortError`` when one does not come up in time."""
        try:
            async with asyncio.timeout(self._start_deadline):
                return await asyncio.gather(*(self._claim_one(handle) for handle in handles))
        except TimeoutError:
            raise PortError(f"the trainer's ranks did not come up within {self._start_deadline:g} s") from None

    async def _claim_one(self, handle: Any) -> tuple[int, bool]:
        """A rank that starts refuses calls, one of a lost node until Ray has noticed the loss: no reason to kill the others."""
        while True:
            with contextlib.suppress(Died):
                return await answer(handle.claim.remote(self._epoch), deadline_seconds=self._start_deadline, what="trainer: claim")
            await asyncio.sleep(CLAIM_AGAIN_SECONDS)

    async def _gather(self, generation: int) -> None:
        what = "trainer: start"
        init_method = await answer(self._handles[0].rendezvous.remote(), deadline_seconds=self._start_deadline, what=what)
        world_size = len(self._handles)
        await self._on_all("form", generation, init_method, world_size, deadline_seconds=self._start_deadline, what=what)

    async def _until_broken(self) -> None:
        held = [asyncio.ensure_future(self._hold(handle)) for handle in self._handles]
        waits = [*held, asyncio.ensure_future(self._broken.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        self._formed.clear()
        self._readiness.set(self._part, LOADING)

    async def _hold(self, handle: Any) -> None:
        with contextlib.suppress(PortError):
            await answer(handle.hold.remote(), deadline_seconds=None, what="trainer")

    async def _replace(self, handles: list[Any]) -> None:
        """Start ranks anew that have been in a group, and wait for their old processes to be gone."""
        await asyncio.gather(*(self._replace_one(handle) for handle in handles))

    async def _replace_one(self, handle: Any) -> None:
        gone = handle.hold.remote()  # sent before the kill, so it meets the old process
        ray.kill(handle, no_restart=False)
        with contextlib.suppress(PortError):
            await answer(gone, deadline_seconds=KILL_SECONDS, what="trainer: restart")
