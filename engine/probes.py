"""Probes: the base model tries some rows of a job that is not started, and what it does is made into a forecast.

    POST /probes ─▶ checked like a job ─▶ in line ─▶ rows through the sampler, behind everything else ─▶ forecast, kept for a while

They live in the manager's memory: a new manager knows none of them, and whoever wants one asks again. The scheduler knows nothing of them;
the sampler serves them last, and few of their completions are with it at once.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from engine.data import BadRow, Datasets, permuted
from engine.errors import Conflict, Invalid, NotFound
from engine.ports import Aborted, AdapterRef, PortError, RolloutPort, RolloutRequest, RolloutResult, Row
from engine.probe_forecast import RowProbe, Took, examples, forecast
from engine.probe_pace import StepPace
from engine.probe_spec import ProbeOrder
from engine.spec import JobSpec, SpecError, parse_as
from engine.stubborn import stubbornly
from engine.trajectory import Trajectory, decode

logger = logging.getLogger(__name__)

AT_ONCE = 2
OPEN_OF_TENANT, OPEN_OF_ALL, KEPT = 2, 64, 512
COMPLETIONS_AT_ONCE = 64  # a quarter of the sampler's smallest batch: what is with it keeps its place, whoever comes
TRIES = 2
# Tokens of the rows that are whole, for whoever bills them; named as in a rollout's summary.
COUNTS = ("prompt_tokens", "env_tokens", "cached_tokens", "sampled_tokens", "judge_tokens")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
OPEN = ("waiting", "running")


@dataclass(kw_only=True, eq=False)
class _Probe:
    name: str
    order: ProbeOrder
    state: str = "waiting"  # waiting | running | done | failed | cancelled
    rows_done: int = 0
    used: Counter[str] = field(default_factory=Counter)
    error: dict[str, str] | None = None
    result: dict[str, Any] | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def job(self) -> str:
        """Its name at the sampler; no job can have one with a slash."""
        return f"probe/{self.name}"

    def answer(self) -> dict[str, Any]:
        group = self.order.spec.rollout.group_size
        return {
            "probe": self.name,
            "state": self.state,
            "done": self.rows_done * group,
            "total": self.order.completions,
            "error": self.error,
            "result": self.result,
            "used": dict(self.used),
        }


class Probes:
    """``check``: the door's, blocking. ``pace``: of the steps so far. ``closed``: whether no new work may begin. ``kv_share``: how many
    completions of a job a probe may have with the sampler at once.
    """

    def __init__(
        self,
        *,
        datasets: Datasets,
        rollout: RolloutPort,
        check: Callable[[JobSpec], None],
        pace: Callable[[], StepPace],
        closed: Callable[[], bool],
        clock: Callable[[], float],
        control_seconds: float,
        kv_share: Callable[[JobSpec], int],
    ):
        self._datasets, self._rollout, self._check = datasets, rollout, check
        self._pace, self._closed, self._clock = pace, closed, clock
        self._control_seconds, self._kv_share = control_seconds, kv_share
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._probes: dict[str, _Probe] = {}

    async def start(self, name: str, raw: Any) -> dict[str, Any]:
        """Begin a ``ProbeOrder``; the same again answers where it stands. Raises ``Invalid``, ``Conflict``, ``NotFound`` for a blob."""
        order = _parsed(name, raw)
        if (known := self._known(name, order)) is None:
            await asyncio.to_thread(self._check, order.spec)
            known = self._known(name, order) or self._begin(name, order)
        return known.answer()

    def state(self, name: str) -> dict[str, Any]:
        return self._found(name).answer()

    async def cancel(self, name: str) -> dict[str, Any]:
        """End it; one that has ended stays as it is."""
        probe = self._found(name)
        if probe.state in OPEN:
            probe.state = "cancelled"
            await _ended(probe)
        return probe.answer()

    async def stop(self) -> None:
        await asyncio.gather(*(_ended(probe) for probe in self._probes.values()))

    def _known(self, name: str, order: ProbeOrder) -> _Probe | None:
        if (known := self._probes.get(name)) is not None and known.order != order:
            raise Conflict(f"probe {name} was asked for before with another body", code="probe_exists", param="probe")
        return known

    def _found(self, name: str) -> _Probe:
        if (found := self._probes.get(name)) is None:
            raise NotFound(f"there is no probe {name}", code="probe_not_found", param="probe")
        return found

    def _begin(self, name: str, order: ProbeOrder) -> _Probe:
        if self._closed():
            raise Conflict("the operator has paused the start of new work; try again later", code="admission_closed")
        waiting = [probe for probe in self._probes.values() if probe.state in OPEN]
        if sum(probe.order.tenant == order.tenant for probe in waiting) >= OPEN_OF_TENANT or len(waiting) >= OPEN_OF_ALL:
            raise Conflict("other probes are under way; wait for one to end, or cancel it", code="probes_busy")
        probe = self._probes[name] = _Probe(name=name, order=order)
        probe.task = asyncio.create_task(self._guarded(probe), name=probe.job)
        for old in [probe.name for probe in self._probes.values() if probe.state not in OPEN][:-KEPT]:
            del self._probes[old]
        return probe

    # Running

    async def _guarded(self, probe: _Probe) -> None:
        """Whatever happens, the probe has an end, and nothing of it stays with the sampler."""
        seconds = probe.order.deadline_seconds
        try:
            async with asyncio.timeout(seconds):
                result = await self._run(probe)
        except TimeoutError:
            _fail(probe, f"not done within {seconds:g} s; ask for fewer rows, or try when the engine has less to do", "platform")
        except PortError as error:
            _fail(probe, error.reason, error.attribution)
        except BadRow as error:
            _fail(probe, str(error), "user")
        except Exception as error:
            logger.exception("%s ends by an error of the engine itself", probe.job)
            _fail(probe, f"internal error: {type(error).__name__}: {error}", "platform")
        else:
            probe.result, probe.state = result, "done"
        finally:
            await self._sweep(probe)

    async def _run(self, probe: _Probe) -> dict[str, Any]:
        async with self._slots:
            probe.state = "running"
            rows = await asyncio.to_thread(self._rows, probe.order)
            began, longest, sampled = self._clock(), 0.0, []
            window = asyncio.Semaphore(max(1, self._completions_at_once(probe) // probe.order.spec.rollout.group_size))

            async def one(row: Row) -> None:
                nonlocal longest
                async with window:
                    started = self._clock()
                    sampled.append(await self._sampled(probe, row))
                    longest = max(longest, self._clock() - started)
                    probe.used.update({name: sampled[-1].summary.get(name, 0) for name in COUNTS})
                    probe.rows_done += 1

            await _together([one(row) for row in rows])
            took = Took(seconds=self._clock() - began, longest_seconds=longest)
        return await asyncio.to_thread(self._forecast, probe.order.spec, rows, sampled, took)

    def _completions_at_once(self, probe: _Probe) -> int:
        return min(COMPLETIONS_AT_ONCE, self._kv_share(probe.order.spec))

    def _rows(self, order: ProbeOrder) -> list[Row]:
        dataset = order.spec.dataset
        positions = [permuted(index, dataset.train_rows, f"probe/{order.spec.seed}") for index in range(order.sampled_rows)]
        return self._datasets.rows(dataset.train, positions)

    async def _sampled(self, probe: _Probe, row: Row) -> RolloutResult:
        request = RolloutRequest(
            adapter=AdapterRef(tenant=probe.order.tenant, job=probe.job, version=0, load_id=0, base=True),
            attempt=1,
            spec=probe.order.spec,
            rows=[row],
            seed=probe.order.spec.seed + 2**31,  # no job's: a forecast that drew the job's own tokens would prove nothing
            adapter_files={},
            deadline_seconds=probe.order.deadline_seconds,
        )

        def on_failure(error: PortError) -> None:
            logger.warning("%s: row %d: %s; trying again", probe.job, row.row, error.reason)

        return await stubbornly(lambda: self._rollout.rollout(request), tries=TRIES, on_failure=on_failure, final=(Aborted,))

    def _forecast(self, spec: JobSpec, rows: list[Row], sampled: list[RolloutResult], took: Took) -> dict[str, Any]:
        order = {row.row: place for place, row in enumerate(rows)}
        found = [(decode(result.batch).trajectories, result.summary.get("judge_tokens", 0)) for result in sampled]
        found.sort(key=lambda row: order[row[0][0].row])
        every: list[Trajectory] = [trajectory for trajectories, _ in found for trajectory in trajectories]
        return {
            **forecast(spec, [RowProbe.of(trajectories, judged) for trajectories, judged in found], took, self._pace()),
            "examples": examples(every),
        }

    async def _sweep(self, probe: _Probe) -> None:
        try:
            async with asyncio.timeout(self._control_seconds):
                if probe.state != "done":
                    await self._rollout.abort(probe.job)
                await self._rollout.unload(probe.job)
        except (PortError, TimeoutError) as error:
            logger.warning("%s: the sampler may still work for it: %s", probe.job, error)


async def _together(works: list[Any]) -> None:
    """All of them, or the first one's failure, with none of the others left running."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(probe: _Probe) -> None:
    if probe.task is not None and not probe.task.done():
        probe.task.cancel()
        await asyncio.gather(probe.task, return_exceptions=True)


def _fail(probe: _Probe, reason: str, attribution: str) -> None:
    if probe.state in OPEN:
        probe.state, probe.error = "failed", {"reason": reason, "attribution": attribution}


def _parsed(name: str, raw: Any) -> ProbeOrder:
    if not _NAME.fullmatch(name):
        raise Invalid.of([("probe", "use 1 to 64 letters, digits, dashes and underscores")])
    try:
        return parse_as(ProbeOrder, raw)
    except SpecError as error:
        raise Invalid.of(error.problems) from None
