"""One lane per (tenant, reward version, source): a queue of items in front of one worker process. Lanes never share a process.

The worker sees one item at a time, each under a name that it cannot guess: so it can neither answer for an item that is still to come, nor
take more than the item at hand with it when it hangs, crashes or lies. The others go to the next worker.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.rewards.sandbox import replies
from engine.rewards.sandbox.endings import ORPHANED, ending
from engine.rewards.sandbox.frames import Forged, encode, encode_text
from engine.rewards.sandbox.nursery import CannotSpawn
from engine.rewards.sandbox.slots import Slots
from engine.rewards.sandbox.verdicts import HARD_GRACE_SECONDS, LOAD_SECONDS, MAX_CALL_SECONDS, MAX_OUTPUT_BYTES, Failed, Output, Verdict
from engine.rewards.sandbox.worker import Late, Lost, Worker

log = logging.getLogger(__name__)

_UNPUNISHED_LOSSES = 3
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.02, 1.0
_LOAD_ERROR_KEPT_SECONDS = 30.0
_NAME_BYTES, _NAMES_AT_ONCE = 8, 64
_FORGED = "wrote to the reply channel itself"
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
    item: str
    platform_losses: int = 0

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
        self._asked: _Entry | None = None
        self._name = self._name_before = ""
        self._names: list[str] = []
        self._before: _Entry | None = None
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

    async def grade(self, items: Sequence[str], *, seconds: float, max_losses: int) -> list[Verdict]:
        """``items`` are JSON texts ``"sample":{…},"item":{…}``, without the outer braces. One verdict each, in order."""
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
        self._settle_all(_UNAVAILABLE)
        await self.drop_worker()

    async def _work(self) -> None:
        self._printed, self._dropped_bytes = bytearray(), 0
        while self._waiting:
            try:
                if error := await self._ready():
                    self._settle_all(error)
                else:
                    await self._ask_on()
            except CannotSpawn as error:
                log.error("a reward could not be graded: %s", error)
                self._settle_all(Failed(kind="unavailable", message=f"the sandbox could not start a worker: {error}"))
            except BaseException:
                self._settle_all(_UNAVAILABLE)
                raise
        if self._slots.wanted:
            await self.drop_worker()
        elif self._worker:
            self._worker.pause()
            self._collect_output()
        self.used_at = self._loop.time()

    async def _ask_on(self) -> None:
        """Ask the worker for item after item, until none waits or the worker is lost."""
        self._asked = None
        worker, first = self._worker, self._question()
        try:
            await worker.exchange(first, self._take, seconds=self._patience())
        except Late:
            line = await worker.hanging_line()
            message = f"killed: it did not end within {self._asked.request.seconds:g} s, and could not be interrupted"
            await self._lost(Failed(kind="hard_timeout", message=message, line=line))
        except Lost as error:
            await self._lost(self._crash(error))
        except Forged as error:
            if self._before and error.reply and error.reply.get("ask") == self._name_before:
                await self._revoke()
                return
            await self._lost(Failed(kind="protocol", message=f"{_FORGED}: {error}"))
        else:
            if self._asked:
                await self._after_loss()

    def _question(self) -> bytes:
        self._before, self._name_before = self._asked, self._name
        self._asked = self._waiting.popleft()
        self._name = self._names.pop() if self._names else self._new_name()
        return encode_text(f'{{"op":"grade","ask":"{self._name}","seconds":{self._asked.request.seconds},{self._asked.item}}}')

    def _new_name(self) -> str:
        """Many are drawn at once: one by one they would take longer than the rest of a question."""
        drawn = secrets.token_hex(_NAME_BYTES * _NAMES_AT_ONCE)
        width = 2 * _NAME_BYTES
        self._names = [drawn[start : start + width] for start in range(0, len(drawn), width)]
        return self._names.pop()

    def _patience(self) -> float:
        return min(self._asked.request.seconds + HARD_GRACE_SECONDS, MAX_CALL_SECONDS)

    def _take(self, reply: dict[str, Any]) -> bytes | None:
        verdict = replies.verdict(reply, ask=self._name)
        self._asked.settle(verdict)
        if type(verdict) is Failed and verdict.kind in _LAST_WORDS:
            return None
        self._losses_in_a_row = 0
        if not self._waiting:
            self._asked = None
            return None
        question = self._question()
        self._worker.allow(self._patience())
        return question

    async def _ready(self) -> Failed | None:
        """A worker that has loaded the source, or why there is none."""
        if self._load_error and self._loop.time() < self._load_error[0]:
            return self._load_error[1]
        if self._worker is not None and self._worker.tainted:
            self._losses_in_a_row += 1
            await self.drop_worker()
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
        try:
            message = encode({"op": "load", "source": self._source, "seconds": LOAD_SECONDS})
            await worker.exchange(message, answer.update, seconds=LOAD_SECONDS + HARD_GRACE_SECONDS)
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

    async def _lost(self, failed: Failed) -> None:
        """The item at hand has failed, except where the loss was ours: then it has another try."""
        if failed.kind == "unavailable" and not self._asked.platform_losses:
            self._asked.platform_losses += 1
            self._waiting.appendleft(self._asked)
            await self.drop_worker()
            return
        self._asked.settle(failed)
        await self._after_loss()

    async def _revoke(self) -> None:
        """The item before answered for itself and then honestly: its verdict is not believed, and the item at hand was never asked."""
        self._waiting.appendleft(self._asked)
        self._asked = self._before
        self._asked.request.verdicts[self._asked.index] = Failed(kind="protocol", message=f"{_FORGED}: two replies to one question")
        await self._after_loss()

    async def _after_loss(self) -> None:
        culprit, self._asked = self._asked, None
        await self.drop_worker()
        self._losses_in_a_row += 1
        culprit.request.losses += 1
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
        if error.status == ORPHANED:
            return _UNAVAILABLE
        self._collect_output()
        return Failed(kind="crash", message=ending(error.status), line=self._worker.last_line() if self._worker else None)

    def _settle_all(self, verdict: Verdict) -> None:
        if self._asked:
            self._waiting.appendleft(self._asked)
            self._asked = None
        while self._waiting:
            self._waiting.popleft().settle(verdict)


_UNAVAILABLE = Failed(kind="unavailable", message="the sandbox was ended from outside; try again")
