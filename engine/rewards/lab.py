"""The Reward Lab's engine: grades a list of cases with one reward, without a job, through a grader pool of its own.

Nothing waits for anything else here: an order that cannot begin soon is answered ``busy``, one that takes long is answered with what it
has, and whoever asked goes on from there with the next. So a run of any length is a row of short calls that can be stopped between two.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any, Literal

from pydantic import Field

from engine.errors import Invalid
from engine.grader_spec import HttpGrader, JudgeGrader, PythonGrader, columns_of, parse_grader, parts_of
from engine.rewards.corpus import Case, all_cases
from engine.rewards.graders import GradeResult
from engine.rewards.pool import GraderPool
from engine.strict import SpecError, Strict

log = logging.getLogger(__name__)

MAX_CASES = 500
MAX_REPEATS = 5
ORDERS_AT_ONCE = 4
ORDERS_OF_ONE_TENANT = 1
# Graders that only wait for somebody else. The others have one worker each: more at once would only wait inside of each other's latency.
_OUTSIDE_AT_ONCE = 8
_IDLE_SECONDS = 300.0
# How a Python reward names the columns that it reads.
_COLUMN = re.compile(r"""item(?:\.get\(|\[)\s*(["'])([^"'\\]{1,100})\1""")

Topic = Literal["number", "expression", "choice", "text"]


class LabSample(Strict):
    output_text: str
    tool_calls: Annotated[tuple[dict[str, Any], ...], Field(max_length=200)] = ()


class LabCase(Strict):
    sample: LabSample
    item: dict[str, Any]


class LabOrder(Strict):
    """What to grade: ``cases``, or the adversarial corpus's cases of ``corpus``; from number ``start`` on.

    No case begins later than ``begin_seconds`` after the call, and each may take ``case_seconds`` for each of its ``repeats``.
    ``run``: the name under which it can be stopped.
    """

    tenant: Annotated[str, Field(min_length=1, max_length=64)]
    run: Annotated[str, Field(max_length=64)] = ""
    grader: dict[str, Any]
    cases: Annotated[tuple[LabCase, ...], Field(max_length=MAX_CASES)] = ()
    corpus: Annotated[tuple[Topic, ...], Field(max_length=4)] = ()
    start: Annotated[int, Field(ge=0)] = 0
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    begin_seconds: Annotated[float, Field(gt=0, le=10)] = 1.0
    case_seconds: Annotated[float, Field(gt=0, le=60)] = 30.0


class Lab:
    """``open_pool`` makes the grader pool when it is first needed; after five minutes without an order it is closed again."""

    def __init__(
        self,
        open_pool: Callable[[], GraderPool],
        *,
        clock: Callable[[], float] = time.monotonic,
        idle_seconds: float = _IDLE_SECONDS,
    ):
        self._open_pool, self._clock, self._idle_seconds = open_pool, clock, idle_seconds
        self._pool: GraderPool | None = None
        self._running: Counter[str] = Counter()
        self._works: dict[str, asyncio.Task[list[dict[str, Any]]]] = {}
        self._idle: asyncio.TimerHandle | None = None
        self._leaving: asyncio.Task[None] | None = None

    async def run(self, order: LabOrder) -> dict[str, Any]:
        """{"total", "results", "busy", "printed"}. ``results``: without a gap from ``order.start`` on, as many as there was time for; of an
        order that was stopped, those that were done by then, by their ``number``.

        One of them is ``cut_off`` when it took longer than it may. Raises ``Invalid`` for what is no grader.
        """
        grader = _parsed(order.grader)
        cases: Sequence[Case | LabCase] = all_cases(order.corpus) if order.corpus else order.cases
        answer: dict[str, Any] = {"total": len(cases), "results": [], "busy": self._is_busy(order.tenant), "printed": ""}
        if answer["busy"]:
            return answer
        async with self._place(order.tenant) as pool:
            answer["results"] = await self._until_stopped(order.run, _Work(order, grader, cases, pool, self._clock))
            answer["printed"] = (await pool.printed(grader, owner=_owner(order.tenant))).text
        return answer

    def stop(self, run: str) -> bool:
        """Let go of what is graded for ``run`` just now, which is then answered with what is done; whether there was anything."""
        work = self._works.get(run)
        return work is not None and work.cancel()

    async def _until_stopped(self, run: str, work: _Work) -> list[dict[str, Any]]:
        task = self._works[run] = asyncio.create_task(work.results())
        try:
            return await task
        except asyncio.CancelledError:
            if asyncio.current_task().cancelling():
                raise  # the client has gone
            return work.done()
        finally:
            task.cancel()
            self._works.pop(run, None)

    async def close(self) -> None:
        """Give memory and processes back. Another order opens them anew."""
        self._stay()
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    def _is_busy(self, tenant: str) -> bool:
        return self._running[tenant] >= ORDERS_OF_ONE_TENANT or self._running.total() >= ORDERS_AT_ONCE

    @asynccontextmanager
    async def _place(self, tenant: str) -> AsyncIterator[GraderPool]:
        self._stay()
        self._pool = self._pool or self._open_pool()
        self._running[tenant] += 1
        try:
            yield self._pool
        finally:
            self._running[tenant] -= 1
            self._running += Counter()  # drops those that are at zero
            if not self._running:
                self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._leave)

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _leave(self) -> None:
        log.info("nobody uses the Lab: its grading processes end")
        self._leaving = asyncio.create_task(self.close(), name="close the idle Lab")


class _Work:
    """One order on its way: cases begin in order, so that what is answered has no gap."""

    def __init__(self, order: LabOrder, grader: Any, cases: Sequence[Case | LabCase], pool: GraderPool, clock: Callable[[], float]):
        self._order, self._grader, self._cases, self._pool, self._clock = order, grader, cases, pool, clock
        self._columns = _columns(grader)
        self._next = order.start
        self._results: dict[int, dict[str, Any]] = {}

    async def results(self) -> list[dict[str, Any]]:
        deadline = self._clock() + self._order.begin_seconds
        async with asyncio.TaskGroup() as group:
            for _ in range(_at_once(self._grader)):
                group.create_task(self._lane(deadline))
        return self.done()

    def done(self) -> list[dict[str, Any]]:
        """By number."""
        return [self._results[number] for number in sorted(self._results)]

    async def _lane(self, deadline: float) -> None:
        while self._next < len(self._cases) and self._clock() < deadline:
            number, self._next = self._next, self._next + 1
            self._results[number] = {"number": number, **await self._graded(self._cases[number])}
            await asyncio.sleep(0)  # what is graded in place never waits

    async def _graded(self, case: Case | LabCase) -> dict[str, Any]:
        told = _told(case) if isinstance(case, Case) else {}
        text, item = (case.text, case.item(self._columns)) if isinstance(case, Case) else (case.sample.output_text, case.item)
        tool_calls = () if isinstance(case, Case) else case.sample.tool_calls
        outcomes: list[dict[str, Any]] = []
        try:
            for _ in range(self._order.repeats):
                async with asyncio.timeout(self._order.case_seconds):
                    outcomes.append(await self._once(text, item, tool_calls))
        except TimeoutError:
            return {"outcomes": outcomes, "cut_off": True, **told}
        return {"outcomes": outcomes, "cut_off": False, **told}

    async def _once(self, text: str, item: Mapping[str, Any], tool_calls: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        began = self._clock()
        result = await self._pool.grade(self._grader, text, item, tool_calls=tool_calls, owner=_owner(self._order.tenant))
        return {**_outcome(result), "seconds": self._clock() - began}


def _parsed(raw: dict[str, Any]) -> Any:
    try:
        return parse_grader(raw)
    except SpecError as error:
        raise Invalid.of([(f"grader.{field}", message) for field, message in error.problems]) from None


def _columns(grader: Any) -> set[str]:
    """The columns that templates need, and those that Python rewards read by name."""
    read = {match[2] for _, part in parts_of(grader) if isinstance(part, PythonGrader) for match in _COLUMN.finditer(part.source)}
    return columns_of(grader) | read


def _at_once(grader: Any) -> int:
    outside = any(isinstance(part, HttpGrader | JudgeGrader) for _, part in parts_of(grader))
    return _OUTSIDE_AT_ONCE if outside else 1


def _owner(tenant: str) -> str:
    return f"{tenant}/lab"  # what stands before the slash is the tenant: his sealed secrets are opened by it


def _told(case: Case) -> dict[str, Any]:
    """A corpus's case as the Lab shows it; its item is question and answer."""
    fields = ("group", "kind", "topic", "question", "answer", "text", "right")
    return {"case": {name: getattr(case, name) for name in fields}}


def _outcome(result: GradeResult) -> dict[str, Any]:
    error = {"kind": result.kind, "message": result.invalid, "line": result.line} if result.invalid else None
    return {"reward": result.reward, "components": dict(result.components), "error": error, "judge_tokens": result.judge_tokens}
