"""One lane per (tenant, reward version, source): a queue of items in front of one worker process. Lanes never share a process.

Items of calls that wait together go to the worker in one batch of at most ``BATCH_ITEMS``. Each has its own reply, so what is lost with
a worker is one item; the others go to the next worker. After a forged reply nothing of that batch is believed: its items are asked
again one by one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.rewards.sandbox import replies
from engine.rewards.sandbox.endings import ending
from engine.rewards.sandbox.frames import Forged, encode
from engine.rewards.sandbox.nursery import CannotSpawn
from engine.rewards.sandbox.slots import Slots
from engine.rewards.sandbox.verdicts import HARD_GRACE_SECONDS, LOAD_SECONDS, MAX_CALL_SECONDS, MAX_OUTPUT_BYTES, Failed, Output, Verdict
from engine.rewards.sandbox.worker import Late, Lost, Worker

log = logging.getLogger(__name__)

BATCH_ITEMS = 64
_UNPUNISHED_LOSSES = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 1.0
_LOAD_ERROR_KEPT_SECONDS = 30.0
# The worker has said so itself, and ends.
_LAST_WORDS = frozenset({"timeout", "memory"})


@dataclass(slots=True)
class Request:
    """One call of ``grade``: its verdicts fill up in any order."""

    seconds: float
    max_losses: int
    verdicts: list[Verdict | None]
    open: int
    done: asyncio.Future[None]
    losses: int = 0


@dataclass(slots=True)
class _Entry:
    request: Request
    index: int
    item: Any
    alone: bool = False
    platform_losses: int = field(default=0)

    def settle(self, verdict: Verdict) -> None:
        self.request.verdicts[self.index] = verdict
        self.request.open -= 1
        if not self.request.open and not self.request.done.done():
            self.request.done.set_result(None)


class Lane:
    def __init__(self, source: str, slots: Slots):
        self._loop = asyncio.get_running_loop()
        self._source, self._slots = source, slots
        self._waiting: deque[_Entry] = deque()
        self._worker: Worker | None = None
        self._working: asyncio.Task[None] | None = None
        self._load_error: tuple[float, Failed] | None = None
        self._losses_in_a_row = 0
        self._printed, self._dropped_bytes = bytearray(), 0
        self.used_at = self._loop.time()

    @property
    def busy(self) -> bool:
        return bool(self._waiting) or (self._working is not None and not self._working.done())

    @property
    def has_worker(self) -> bool:
        return self._worker is not None

    async def grade(self, items: Sequence[Any], *, seconds: float, max_losses: int) -> list[Verdict]:
        """``items`` are valid already. One verdict each, in order."""
        if not items:
            return []
        self.used_at = self._loop.time()
        request = Request(
            seconds=seconds, max_losses=max_losses, verdicts=[None] * len(items), open=len(items), done=self._loop.create_future()
        )
        self._waiting.extend(_Entry(request, index, item) for index, item in enumerate(items))
        if self._working is None or self._working.done():
            self._working = asyncio.create_task(self._work())
        await request.done
        return request.verdicts

    def output(self) -> Output:
        """What the reward printed since it last had nothing to do."""
        return Output(text=self._printed.decode("utf-8", "replace"), dropped_bytes=self._dropped_bytes)

    async def drop_worker(self) -> None:
        self._collect_output()
        worker, self._worker = self._worker, None
        if worker:
            try:
                await worker.kill()
            finally:
                self._slots.give_back()

    async def close(self) -> None:
        if self._working:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        for entry in self._waiting:
            entry.settle(_UNAVAILABLE)
        self._waiting.clear()
        await self.drop_worker()

    async def _work(self) -> None:
        self._printed, self._dropped_bytes = bytearray(), 0
        while self._waiting:
            batch = self._next_batch()
            try:
                await self._run(batch)
            except CannotSpawn as error:
                log.error("a reward could not be graded: %s", error)
                self._settle_rest(batch, Failed(kind="unavailable", message=f"the sandbox could not start a worker: {error}"))
            except BaseException:
                self._settle_rest(batch, _UNAVAILABLE)
                raise
        if self._slots.wanted:
            await self.drop_worker()
        elif self._worker:
            self._worker.pause()
            self._collect_output()
        self.used_at = self._loop.time()

    def _next_batch(self) -> list[_Entry]:
        """Items with one time limit, up to ``BATCH_ITEMS``; a suspect one goes alone."""
        batch = [self._waiting.popleft()]
        while self._waiting and len(batch) < BATCH_ITEMS and not batch[0].alone:
            following = self._waiting[0]
            if following.alone or following.request.seconds != batch[0].request.seconds:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _run(self, batch: list[_Entry]) -> None:
        if error := await self._ready():
            self._settle_rest(batch, error)
            return
        worker, name, got = self._worker, secrets.token_hex(8), []
        seconds = batch[0].request.seconds

        def take(reply: dict[str, Any]) -> bool:
            verdict = replies.verdict(reply, batch=name, index=len(got))
            got.append(verdict)
            return len(got) == len(batch) or (type(verdict) is Failed and verdict.kind in _LAST_WORDS)

        message = encode({"op": "batch", "batch": name, "seconds": seconds, "items": [entry.item for entry in batch]})
        try:
            await worker.exchange(message, take, seconds=min(seconds + HARD_GRACE_SECONDS, MAX_CALL_SECONDS))
        except Late:
            line = await worker.hanging_line()
            message = f"killed: it did not end within {seconds:g} s, and could not be interrupted"
            await self._lost(batch, got, Failed(kind="hard_timeout", message=message, line=line))
        except Lost as error:
            await self._lost(batch, got, self._crash(error))
        except Forged as error:
            await self._forged(batch, error)
        else:
            await self._answered(batch, got)

    async def _ready(self) -> Failed | None:
        """A worker that has loaded the source, or why there is none."""
        if self._load_error and self._loop.time() < self._load_error[0]:
            return self._load_error[1]
        if self._worker is not None:
            self._worker.resume()
            return None
        await self._wait_after_losses()
        self._worker = await self._slots.take()
        error = await self._load(self._worker)
        if error:
            await self.drop_worker()
            if error.kind != "unavailable":
                self._load_error = (self._loop.time() + _LOAD_ERROR_KEPT_SECONDS, error)
        return error

    async def _load(self, worker: Worker) -> Failed | None:
        answer: dict[str, Any] = {}

        def take(reply: dict[str, Any]) -> bool:
            answer.update(reply)
            return True

        try:
            message = encode({"op": "load", "source": self._source, "seconds": LOAD_SECONDS})
            await worker.exchange(message, take, seconds=LOAD_SECONDS + HARD_GRACE_SECONDS)
            return None if answer.get("loaded") is True and len(answer) == 1 else replies.failed(answer.get("error"))
        except Late:
            line = await worker.hanging_line()
            return Failed(kind="import_error", message=f"killed: the import did not end within {LOAD_SECONDS:g} s", line=line)
        except Lost as error:
            crash = self._crash(error)
            return crash if crash.kind == "unavailable" else Failed(kind="import_error", message=crash.message, line=crash.line)
        except Forged as error:
            return Failed(kind="protocol", message=f"forged a reply during its import: {error}")

    async def _wait_after_losses(self) -> None:
        """A reward that breaks worker after worker waits longer each time, so that the machine stays the others'."""
        extra = self._losses_in_a_row - _UNPUNISHED_LOSSES
        if extra > 0:
            await asyncio.sleep(min(_FIRST_PAUSE_SECONDS * 2 ** min(extra, 10), _LONGEST_PAUSE_SECONDS))

    async def _answered(self, batch: list[_Entry], got: list[Verdict]) -> None:
        for entry, verdict in zip(batch, got, strict=False):
            entry.settle(verdict)
        last = got[-1]
        if type(last) is Failed and last.kind in _LAST_WORDS:
            await self._after_loss(batch[len(got) - 1], batch[len(got) :])
        else:
            self._losses_in_a_row = 0

    async def _lost(self, batch: list[_Entry], got: list[Verdict], failed: Failed) -> None:
        """What was answered stands; the item at hand has failed; the rest goes on."""
        for entry, verdict in zip(batch, got, strict=False):
            entry.settle(verdict)
        culprit, rest = batch[len(got)], batch[len(got) + 1 :]
        if failed.kind == "unavailable" and culprit.platform_losses == 0:
            culprit.platform_losses += 1
            await self.drop_worker()
            self._waiting.extendleft(reversed([culprit, *rest]))
            return
        culprit.settle(failed)
        await self._after_loss(culprit, rest)

    async def _forged(self, batch: list[_Entry], error: Forged) -> None:
        culprit = batch[0]
        if culprit.alone or len(batch) == 1:
            culprit.settle(Failed(kind="protocol", message=f"wrote to the reply channel itself: {error}"))
            await self._after_loss(culprit, [])
            return
        for entry in batch:
            entry.alone = True
        await self._after_loss(culprit, batch)

    async def _after_loss(self, culprit: _Entry, rest: list[_Entry]) -> None:
        await self.drop_worker()
        self._losses_in_a_row += 1
        culprit.request.losses += 1
        self._waiting.extendleft(reversed(rest))
        if culprit.request.losses >= culprit.request.max_losses:
            self._abort(culprit.request)

    def _abort(self, request: Request) -> None:
        reason = Failed(kind="aborted", message=f"not tried: {request.losses} workers were lost on items before this one")
        kept: deque[_Entry] = deque()
        for entry in self._waiting:
            if entry.request is request:
                entry.settle(reason)
            else:
                kept.append(entry)
        self._waiting = kept

    def _collect_output(self) -> None:
        if self._worker:
            text, dropped_bytes = self._worker.take_output()
            kept = text[: max(0, MAX_OUTPUT_BYTES - len(self._printed))]
            self._printed += kept
            self._dropped_bytes += dropped_bytes + len(text) - len(kept)

    def _crash(self, error: Lost) -> Failed:
        if self._slots.template_died:
            return _UNAVAILABLE
        self._collect_output()
        return Failed(kind="crash", message=ending(error.status), line=self._worker.last_line() if self._worker else None)

    def _settle_rest(self, batch: list[_Entry], verdict: Verdict) -> None:
        for entry in batch:
            if entry.request.verdicts[entry.index] is None:
                entry.settle(verdict)


_UNAVAILABLE = Failed(kind="unavailable", message="the sandbox was ended from outside; try again")
