"""The Lab's mutations: begin a run, go on with it a few seconds at a time, stop it. Page, API and worker call the same.

A run goes on in slices: one call to the engine each. The first is made at once, so that a small trial is done when the page comes back.
The others are tasks that hand on to the next, one at a time over all tenants, since jobs are delivered by the same workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from engine.grader_spec import parse_grader, parts_of
from engine.spec import SpecError
from portal.errors import Conflict, Invalid
from portal.gateway import EngineDown, EngineRefused, EngineSlow, Gateway, engine
from portal.jobs import catalog, engines
from portal.rewards import trial_costs
from portal.rewards.lab_cases import cases_of, size_of
from portal.rewards.models import LabCase, LabRun, Reward, Sheet
from portal.rewards.secrets import sealed
from portal.rewards.trial import OnCorpus, Trial, topics_for
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)
MAX_OPEN = 3
MAX_KEPT = 20
MAX_FAILURES = 5
MAX_LOST = 8
LIMIT = timedelta(minutes=10)
BEGIN_SECONDS = 1.0
CASE_SECONDS = 25.0
INLINE_SECONDS = 2.0
LEASE = timedelta(seconds=150)  # longer than any slice
BUSY_SECONDS = 1.0
_BODY_BYTES = 1_000_000
_CASES_AT_ONCE = 100
_LOST = ("timeout", "hard_timeout", "memory", "crash", "protocol", "aborted")
DOWN = "The engine does not answer at the moment. Nothing is lost: run it again when it is back."


def begin_run(
    tenant: Tenant,
    user: User,
    grader: dict[str, Any],
    trial: Trial,
    now: datetime,
    *,
    reward: Reward | None = None,
    sheet: Sheet | None = None,
) -> LabRun:
    """Fix the cases and grade the first of them. Raises ``Invalid`` naming fields, ``Conflict`` for too many runs, ``Forbidden``.

    What judges may cost is held, a call at a time; who cannot pay it is refused as by ``spending.hold``.
    """
    require(tenant, user, Role.MEMBER)
    parsed, problems = _parsed(grader), []
    kept = sealed(tenant.public_id, parsed.model_dump(mode="json"), problems)
    if problems:
        raise Invalid(problems)
    _check_model(trial.base_model, now)
    cases = cases_of(tenant, trial)
    on = trial.on.model_dump(mode="json")
    if isinstance(trial.on, OnCorpus):
        on["topics"] = list(trial.on.topics or topics_for(parsed))
    elif trial.on.type == "text":
        on.pop("samples")  # they are the cases
    with transaction.atomic():
        Tenant.objects.select_for_update().get(pk=tenant.pk)  # two at once: the second sees the first
        if tenant.lab_runs.filter(state=LabRun.State.RUNNING).count() >= MAX_OPEN:
            raise Conflict([("on", f"{MAX_OPEN} trials are running already; wait for one to end, or stop it")])
        run = LabRun.objects.create(
            tenant=tenant,
            reward=reward,
            sheet=sheet,
            grader=kept,
            on=on,
            repeats=trial.repeats,
            base_model=trial.base_model or "",
            total=len(cases),
            created_by=user,
            created_at=now,
            beat_at=now,
        )
        LabCase.objects.bulk_create(LabCase(tenant=tenant, run=run, number=number, case=case) for number, case in enumerate(cases))
        _hold(run, cases[:_CASES_AT_ONCE], now)
        _forget_old(run)
    if (wait_seconds := _advance(run, now, case_seconds=INLINE_SECONDS / trial.repeats, is_final=False)) is not None:
        _hand_on(run, wait_seconds)
    run.refresh_from_db()
    return run


def stop_run(tenant: Tenant, user: User, run: LabRun, now: datetime) -> None:
    """What is graded stays, and is paid: a slice under way is kept when it comes back. Stopping what has ended is no error."""
    require(tenant, user, Role.MEMBER)
    _close(run, now, LabRun.State.STOPPED, "Stopped. What had been graded by then is shown.")
    under_way = False
    try:
        under_way = _engine(run).stop_grading(run.public_id)
    except (EngineDown, EngineRefused) as error:
        log.info("lab_not_stopped_in_engine", run=run.public_id, reason=str(error))  # its slice ends by itself
    if not under_way:
        trial_costs.release(run.tenant, run.public_id, now)
    run.refresh_from_db()


def go_on(pk: int, now: datetime) -> None:
    """A worker's slice. One run at a time: the others wait their turn."""
    run = LabRun.objects.select_related("tenant").filter(pk=pk).first()
    if run is None:
        return
    if not run.is_open:
        trial_costs.release(run.tenant, run.public_id, now)
        return
    if LabRun.objects.filter(state=LabRun.State.RUNNING, busy_until__gt=now).exclude(pk=pk).exists():
        LabRun.objects.filter(pk=pk).update(beat_at=now)
        _hand_on(run, BUSY_SECONDS)
        return
    LabRun.objects.filter(pk=pk).update(beat_at=now, busy_until=now + LEASE)
    try:
        wait_seconds = _advance(run, now, case_seconds=CASE_SECONDS, is_final=True)
    finally:
        LabRun.objects.filter(pk=pk).update(busy_until=None)
    if wait_seconds is not None:
        _hand_on(run, wait_seconds)


def wake(run: LabRun, now: datetime) -> None:
    """Start a run again whose task was lost; whoever looks at it notices."""
    silent = LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING, beat_at=run.beat_at)
    if run.is_silent(now) and silent.update(beat_at=now):
        _hand_on(run, 0.0)


def _advance(run: LabRun, now: datetime, *, case_seconds: float, is_final: bool) -> float | None:
    """One call to the engine; the seconds to wait before the next, None when the run has ended.

    Not ``is_final``: what was cut off is tried again, with more time.
    """
    if now - run.created_at > LIMIT:
        return _end(run, now, LabRun.State.FAILED, f"Ended after {LIMIT.seconds // 60} minutes. What had been graded by then is shown.")
    cases = list(run.cases.filter(number__gte=run.done).order_by("number")[:_CASES_AT_ONCE])
    try:
        _hold(run, [case.case for case in cases], now)
    except Conflict as refused:
        return _end(run, now, LabRun.State.FAILED, f"Ended early: {refused.problems[0][1]}."[:500])
    order = {
        **_order(run, cases),
        "tenant": run.tenant.public_id,
        "run": run.public_id,
        "grader": run.grader,
        "repeats": run.repeats,
        "begin_seconds": BEGIN_SECONDS,
        "case_seconds": case_seconds,
    }
    try:
        answer = _engine(run).grade(order, seconds=BEGIN_SECONDS + run.repeats * case_seconds)
    except EngineDown as error:
        return _failed(run, now, error, is_final=is_final)
    except EngineRefused as error:
        return _end(run, now, LabRun.State.FAILED, f"The engine refused it: {error}"[:500])
    results = answer["results"]
    if not is_final:
        results = _until_cut_off(results)
    return _keep(run, timezone.now(), answer, results)


def _check_model(model: str | None, now: datetime) -> None:
    """Raises ``Invalid`` for one that no engine is known to serve."""
    known = [info.name for info in catalog.known_models(now)] if model else []
    if model and model not in known:
        raise Invalid([("base_model", f"unknown model {model}; choose among {', '.join(known)}")])


def _engine(run: LabRun) -> Gateway:
    """Raises ``EngineDown``."""
    return engines.serving(run.base_model) if run.base_model else engine()


def _order(run: LabRun, cases: Sequence[LabCase]) -> dict[str, Any]:
    if run.on["type"] == "corpus":
        return {"corpus": run.on["topics"], "start": run.done}
    return {"cases": [_wire(case.case) for case in _that_fit(cases, _BODY_BYTES - size_of(run.grader))]}


def _wire(case: dict[str, Any]) -> dict[str, Any]:
    return {"sample": {"output_text": case["text"], "tool_calls": case.get("tool_calls", [])}, "item": case["item"]}


def _that_fit(cases: Iterable[LabCase], room: int) -> Iterable[LabCase]:
    for case in cases:
        room -= size_of(case.case) + 100
        if room < 0:
            return
        yield case


def _keep(run: LabRun, now: datetime, answer: dict[str, Any], results: list[dict[str, Any]]) -> float | None:
    """Store ``results`` behind what is there, of a run that was stopped meanwhile too; nothing of one that others went on with."""
    total = answer["total"] if run.on["type"] == "corpus" else run.total
    done = run.done + len(results)
    first = 0 if run.on["type"] == "corpus" else run.done  # an order of cases counts from its own first
    mine = LabRun.objects.filter(pk=run.pk, state__in=(LabRun.State.RUNNING, LabRun.State.STOPPED), done=run.done)
    with transaction.atomic():
        fields: dict[str, Any] = {"done": done, "total": total, "beat_at": now, "failures": 0}
        if answer.get("printed"):
            fields["printed"] = _storable(answer["printed"])
        if not mine.update(**fields):
            return None
        for result in results:
            number, kept = first + result["number"], _result(result)
            if "case" in result:
                LabCase.objects.create(tenant=run.tenant, run=run, number=number, case=result["case"], result=kept)
            else:
                LabCase.objects.filter(run=run, number=number).update(result=kept)
        outcomes = (outcome for result in results for outcome in result["outcomes"])
        trial_costs.bill(run.tenant, run.public_id, run.done, outcomes, now)
        run.refresh_from_db(fields=["state"])
        if not run.is_open:
            return trial_costs.release(run.tenant, run.public_id, now)
    run.done, run.total, run.failures = done, total, 0
    if done >= total:
        return _end(run, now, LabRun.State.SUCCEEDED, "")
    if _lost(run) >= MAX_LOST:
        note = f"Ended early: {MAX_LOST} cases ran out of time or memory, or broke the process. Mend that first."
        return _end(run, now, LabRun.State.FAILED, note)
    return BUSY_SECONDS if answer["busy"] else 0.0


def _result(raw: dict[str, Any]) -> dict[str, Any]:
    outcomes = raw["outcomes"]
    if raw["cut_off"]:
        error = {"kind": "timeout", "message": f"not graded within {CASE_SECONDS:g} s", "line": None}
        outcomes = [*outcomes, {"reward": None, "components": {}, "error": error, "judge_tokens": 0, "seconds": CASE_SECONDS}]
    return {"outcomes": outcomes}


def _lost(run: LabRun) -> int:
    """Cases that cost a worker or ran into a limit: each takes seconds, and somebody else waits for them."""
    return run.cases.filter(result__outcomes__0__error__kind__in=_LOST).count()


def _until_cut_off(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = []
    for result in results:
        if result["cut_off"]:
            break
        kept.append(result)
    return kept


def _failed(run: LabRun, now: datetime, error: EngineDown, *, is_final: bool) -> float | None:
    """An engine that is away is said at once where somebody waits for the page. One that is only slow, as while its sandbox starts, is
    asked again in the background, and a run that is on its way outlives a restart of the engine.
    """
    log.warning("lab_engine_down", run=run.public_id, reason=str(error))
    run.failures += 1
    gone = not is_final and not isinstance(error, EngineSlow)
    if gone or run.failures > MAX_FAILURES:
        return _end(run, now, LabRun.State.FAILED, DOWN)
    LabRun.objects.filter(pk=run.pk).update(failures=run.failures, beat_at=now)
    return 2.0 * run.failures


def _end(run: LabRun, now: datetime, state: LabRun.State, note: str) -> None:
    with transaction.atomic():
        _close(run, now, state, note)
        trial_costs.release(run.tenant, run.public_id, now)


def _close(run: LabRun, now: datetime, state: LabRun.State, note: str) -> None:
    LabRun.objects.filter(pk=run.pk, state=LabRun.State.RUNNING).update(state=state, note=note, ended_at=now, beat_at=now)


def _hold(run: LabRun, cases: list[dict[str, Any]], now: datetime) -> None:
    trial_costs.hold(run.tenant, run.public_id, run.grader, cases, run.repeats, now)


def _hand_on(run: LabRun, seconds: float) -> None:
    from portal.rewards.tasks import grade_slice

    transaction.on_commit(lambda: grade_slice.apply_async((run.pk,), countdown=seconds or None, retry=False), robust=True)


def _forget_old(run: LabRun) -> None:
    """Keep the latest runs of this reward, of this sheet, or of what was never stored."""
    same = run.tenant.lab_runs.filter(reward=run.reward, sheet=run.sheet).exclude(state=LabRun.State.RUNNING)
    old = list(same.order_by("-id").values_list("pk", flat=True)[MAX_KEPT - 1 :])
    LabRun.objects.filter(pk__in=old).delete()


def _parsed(grader: dict[str, Any]) -> Any:
    try:
        return parse_grader(grader)
    except SpecError as error:
        raise Invalid([(f"grader.{field}", message) for field, message in error.problems]) from None


def _storable(text: str) -> str:
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode()


def sources_of(grader: dict[str, Any]) -> dict[str, str]:
    """The Python sources of a stored grader, by the name of their part; "" is the grader itself."""
    found = {prefix: part for prefix, part in parts_of(parse_grader(grader)) if part.type == "python"}
    return {prefix.removeprefix("graders.").rstrip("."): part.source for prefix, part in found.items()}
