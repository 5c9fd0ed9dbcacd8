"""Probes' mutations: begin one, learn how far it is, end it. Nothing is stored of what the engine refuses."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import structlog
from django.db import IntegrityError, transaction

from portal import gateway
from portal.billing import meter, spending, worst
from portal.billing.models import SourceType
from portal.billing.spending import Spender
from portal.errors import Conflict, Invalid
from portal.jobs import door, engines
from portal.rewards.models import Reward
from portal.rewards.probe_models import DEADLINE, OPEN_STATES, Probe, probe_id
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)

MAX_ROWS, USUAL_ROWS = 2048, 64
LASTS = 2 * DEADLINE  # of a hold: the sweeper takes in what has ended long before
BILLED_FAILURES = ("user", "reward")  # whose doing they are; what the platform failed is not billed
State = Probe.State


def start_probe(tenant: Tenant, user: User, reward: Reward, raw: Any, now: datetime, *, idempotency_key: str | None = None) -> Probe:
    """A probe of ``raw``: {dataset, base_model, rows?, rollout?, environment?, train?, seed?}, as for a job, the dataset by public id.

    The same ``idempotency_key`` with the same ``raw`` gives the same probe; with another one ``Conflict``. Raises ``Invalid`` naming each
    bad field, ``Forbidden`` for viewers, ``gateway.EngineDown``, and the refusals of ``spending.hold`` for who cannot pay: what all rows
    may take is held before the engine hears of it.
    """
    require(tenant, user, Role.MEMBER)
    digest = door.request_sha256({"reward": reward.public_id, "asked": raw})
    if idempotency_key and (known := door.replayed(tenant.probes, idempotency_key, digest)):
        return known
    probe, most = _checked(tenant, user, reward, raw, now)
    probe.idempotency_key, probe.request_sha256 = idempotency_key, digest
    spending.hold(_spender(probe), most, now, lasts=LASTS)
    try:
        return _begun(probe, now)
    except BaseException as error:
        spending.bill(_spender(probe), [], now)
        if not isinstance(error, IntegrityError):
            raise
        # Two requests with one key at once; the engine's deadline ends the second.
        if idempotency_key and (known := door.replayed(tenant.probes, idempotency_key, digest)):
            return known
        raise


def refresh(probe: Probe, now: datetime) -> Probe:
    """Ask the engine how far it is. One that it has forgotten, since it was started anew, begins again."""
    if probe.is_open:
        _refreshed(probe, now)
    return probe


def _refreshed(probe: Probe, now: datetime) -> bool:
    """Whether the engine has answered."""
    try:
        _store(probe, _state_of(probe), now)
    except gateway.EngineDown as error:
        log.info("probe_not_refreshed", probe=probe.public_id, reason=str(error))
        if probe.is_overdue(now):
            _end(probe, now, State.FAILED, reason="the engine did not answer in time; try again")
        return False
    except gateway.EngineRefused as refused:
        _end(probe, now, State.FAILED, reason=str(refused))
    return True


def cancel_probe(tenant: Tenant, user: User, probe: Probe, now: datetime) -> Probe:
    """End it; one that has ended stays as it is. An engine that does not answer ends it by its deadline."""
    require(tenant, user, Role.MEMBER)
    if not probe.is_open:
        return probe
    used: dict[str, Any] = {}
    try:
        used = _engine(probe).cancel_probe(probe.public_id).get("used") or {}
    except (gateway.EngineDown, gateway.EngineRefused) as error:
        log.info("probe_not_cancelled", probe=probe.public_id, reason=str(error))
    _end(probe, now, State.CANCELLED, used=used)
    return probe


def sweep(now: datetime) -> None:
    """Take in what nobody looks at, before its engine forgets it; one that is down is asked once."""
    away = set()
    for probe in Probe.objects.filter(state__in=OPEN_STATES).order_by("id")[:50]:
        engine = engines.name_for(probe.body["spec"]["base_model"])
        if engine not in away and not _refreshed(probe, now):
            away.add(engine)


def _begun(probe: Probe, now: datetime) -> Probe:
    """The engine has it, and then we. Raises ``Invalid``, ``gateway.EngineDown``, ``IntegrityError``."""
    answer = _asked(probe)
    _take(probe, answer, now)
    with transaction.atomic():
        probe.save()
        if not probe.is_open:
            _settle(probe, answer.get("used") or {}, _why_free(answer), now)
    return probe


def _checked(tenant: Tenant, user: User, reward: Reward, raw: Any, now: datetime) -> tuple[Probe, dict[str, int]]:
    """Not stored yet; and kind → the tokens that it may take. Raises ``Invalid``."""
    if not isinstance(raw, dict):
        raise Invalid([("probe", "must be an object with dataset and base_model")])
    rows, problems = _rows(raw.get("rows", USUAL_ROWS))
    job = {name: value for name, value in raw.items() if name != "rows"}
    try:
        order = door.check(tenant, {**job, "reward": reward.public_id}, now)
    except Invalid as refusal:
        raise Invalid([*problems, *refusal.problems]) from None
    if problems:
        raise Invalid(problems)
    body = {
        "tenant": tenant.public_id,
        "rows": rows,
        "spec": order.spec.model_dump(mode="json"),
        "deadline_seconds": DEADLINE.total_seconds(),
    }
    probe = Probe(tenant=tenant, public_id=probe_id(), reward=reward, dataset=order.dataset, body=body, created_by=user, created_at=now)
    completions = min(rows, order.spec.dataset.train_rows) * order.spec.rollout.group_size
    return probe, worst.sampled_tokens(order.spec, completions)


def _rows(value: Any) -> tuple[int, list[tuple[str, str]]]:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_ROWS:
        return value, []
    return USUAL_ROWS, [("rows", f"a whole number from 1 to {MAX_ROWS}")]


def _engine(probe: Probe) -> gateway.Gateway:
    return engines.serving(probe.body["spec"]["base_model"])


def _asked(probe: Probe) -> dict[str, Any]:
    """The engine's first answer. Raises ``Invalid`` for its refusal."""
    try:
        return _engine(probe).probe(probe.public_id, probe.body)
    except gateway.EngineRefused as refused:
        problems = [(field.removeprefix("spec."), message) for field, message in refused.problems] or [("probe", str(refused))]
        raise (Conflict if refused.status == 409 else Invalid)(problems) from refused


def _state_of(probe: Probe) -> dict[str, Any]:
    try:
        return _engine(probe).probe_state(probe.public_id)
    except gateway.EngineRefused as refused:
        if refused.status != 404:
            raise
        return _engine(probe).probe(probe.public_id, probe.body)


def _take(probe: Probe, answer: dict[str, Any], now: datetime) -> None:
    """What the engine says, on the object alone. A state that this portal does not know is one that goes on."""
    state = str(answer.get("state"))
    probe.state = State(state) if state in State.values else State.RUNNING
    probe.done, probe.total, probe.result = int(answer.get("done") or 0), int(answer.get("total") or 0), answer.get("result")
    probe.reason = str((answer.get("error") or {}).get("reason", ""))[:1000]
    probe.ended_at = None if probe.is_open else now


def _store(probe: Probe, answer: dict[str, Any], now: datetime) -> None:
    """Compare and set: a probe that has ended meanwhile stays as it ended."""
    _take(probe, answer, now)
    fields = ("state", "done", "total", "result", "reason", "ended_at")
    with transaction.atomic():
        moved = Probe.objects.filter(pk=probe.pk, state__in=OPEN_STATES).update(**{name: getattr(probe, name) for name in fields})
        if moved and not probe.is_open:
            _settle(probe, answer.get("used") or {}, _why_free(answer), now)
    if not moved:
        probe.refresh_from_db(fields=fields)


def _end(probe: Probe, now: datetime, state: Probe.State, *, reason: str = "", used: dict[str, Any] | None = None) -> None:
    with transaction.atomic():
        if Probe.objects.filter(pk=probe.pk, state__in=OPEN_STATES).update(state=state, reason=reason[:1000], ended_at=now):
            _settle(probe, used or {}, "", now)
    probe.refresh_from_db(fields=("state", "done", "total", "result", "reason", "ended_at"))


def _settle(probe: Probe, used: dict[str, Any], free: str, now: datetime) -> None:
    """Bill what the engine counted, the rows that were whole, and let go of the rest. ``free``: why it is not billed."""
    spender = _spender(probe)
    spending.bill(spender, spending.used(spender, meter.sampled(used), now, reason=free), now)


def _why_free(answer: dict[str, Any]) -> str:
    error = answer.get("error")
    if not error or error.get("attribution") in BILLED_FAILURES:
        return ""
    return f"not billed: the platform failed this probe: {error.get('reason', '')}"[:300]


def _spender(probe: Probe) -> Spender:
    return Spender(
        tenant=probe.tenant, source_type=SourceType.PROBE, source=probe.public_id, model=probe.spec["base_model"], words="this probe"
    )
