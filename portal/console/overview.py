"""Everything that the operators' first page shows, as one JSON object: the engine's own overview, and what the database knows beside it.

When the engine does not answer, what the database knows is shown all the same, and the page says what is missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Min, Sum

from portal import gateway, pulse
from portal.billing.models import Account
from portal.console import figures, outbox
from portal.console.recent import WINDOW, Recent, Step, recent
from portal.console.tenants import told_apart
from portal.jobs.models import EngineCursor, Job, JobCommand, JobSubmission

ZOOMS = (60, 300, 900)  # seconds
KEPT_FOR = timedelta(seconds=15)
_heard: dict[str, tuple[datetime, dict[str, Any]]] = {}  # by engine: when it last answered this process, and what
_LANES = {"rollout": "rollout", "training": "train"}


def live(now: datetime, zoom_seconds: int, source: Recent = recent, name: str = "") -> dict[str, Any]:
    """``zoom_seconds``: one of ``ZOOMS``; how much of the window the Gantt shows. Figures are always of the whole window.

    ``name``: of the engine that it is about.
    """
    until = now.timestamp()
    engine = _engine_at(now, name)
    steps = _of_engine(source.steps(now), name)
    running = _running(engine["open"], until - engine["late_seconds"])
    return {
        "at": now.isoformat(),
        "zoom": zoom_seconds,
        "window": WINDOW.total_seconds(),
        "engine": engine,
        "gantt": figures.gantt(steps, running, until - zoom_seconds, until),
        "busy": _busy(steps, running, until),
        "ttfs": figures.distribution(figures.first_steps(steps)),
        "tpts": figures.distribution(figures.paces(steps)),
        "steps": len(steps),
        "fairness": figures.fairness(_tokens(steps), {share["tenant"]: share["weight"] for share in engine["shares"]}),
        "kv": _kv(engine),
        "pulses": pulses(now),
        "lag": lag(engine, now, name),
        "due": due(now),
        **_names(engine, steps),
    }


def ask_engine(name: str = "") -> dict[str, Any]:
    """Its overview; with ``away`` the reason why there is none, and whether it was reached and was only ``slow``."""
    empty: dict[str, Any] = {
        "open": [],
        "shares": [],
        "next": [],
        "line": 0,
        "workers": [],
        "versions": {},
        "training": {"running": [], "queue": []},
    }
    try:
        return {**empty, **gateway.engine(name).overview(), "away": "", "slow": False}
    except (gateway.EngineDown, gateway.EngineRefused) as error:
        return {**empty, "away": str(error), "slow": isinstance(error, gateway.EngineSlow)}


def _engine_at(now: datetime, name: str) -> dict[str, Any]:
    """Its overview and how old that is: one late answer is no reason to take everything off the screen."""
    engine = ask_engine(name)
    if not engine["away"]:
        _heard[name] = (now, engine)
    elif engine["slow"] and name in _heard and now - _heard[name][0] < KEPT_FOR:
        at, known = _heard[name]
        return {**known, "late_seconds": (now - at).total_seconds()}
    return {**engine, "late_seconds": 0.0}


def lag(engine: Mapping[str, Any], now: datetime, name: str = "") -> dict[str, Any]:
    """How far the database lies behind the engine's journal: events not stored yet (None: nobody knows), seconds since the cursor moved."""
    cursor = EngineCursor.objects.filter(current=True, name=name).first()
    if cursor is None:
        return {"behind": None, "seconds": None, "moved_seconds": None}
    known = "offset" in engine and engine.get("engine") == cursor.engine
    behind = max(0, engine["offset"] - cursor.offset) if known else None
    moved = (now - cursor.updated_at).total_seconds()
    return {"behind": behind, "seconds": moved if behind else 0.0 if behind == 0 else None, "moved_seconds": moved}


def due(now: datetime) -> dict[str, Any]:
    """What waits to be sent: to the engine, and to the payment provider; ages in seconds, None where nothing waits."""
    submissions = JobSubmission.objects.filter(answered_at=None)
    commands = JobCommand.objects.filter(answered_at=None)
    return {
        "submissions": submissions.count(),
        "submission_seconds": _age(submissions.aggregate(at=Min("created_at"))["at"], now),
        "commands": commands.count(),
        "command_seconds": _age(commands.aggregate(at=Min("requested_at"))["at"], now),
        **outbox.waiting(now),
    }


def _age(at: datetime | None, now: datetime) -> float | None:
    return None if at is None else max(0.0, (now - at).total_seconds())


def _of_engine(steps: list[Step], name: str) -> list[Step]:
    """With one engine all; with several those whose jobs are in a journal of this one."""
    if len(gateway.names()) == 1:
        return steps
    journals = set(EngineCursor.objects.filter(name=name).values_list("engine", flat=True))
    return [step for step in steps if step.engine in journals]


def _running(jobs: Iterable[Mapping[str, Any]], heard: float) -> list[tuple[str, str, float]]:
    """(job, lane, since when) of what goes on, as it was said at ``heard``."""
    return [
        (job["job"], _LANES[job["phase"]], heard - job["phase_seconds"])
        for job in jobs
        if job["phase"] in _LANES and job["phase_seconds"] is not None
    ]


def _busy(steps: Sequence[Step], running: Sequence[tuple[str, str, float]], until: float) -> dict[str, float]:
    """Shares of the window in which a lane had work; ``idle``: neither the sampler nor the trainer had any."""
    since = until - WINDOW.total_seconds()
    of: dict[str, list[figures.Interval]] = defaultdict(list)
    for step in steps:
        for lane, start, end in step.lanes:
            of[lane].append((start, end))
    for _, lane, start in running:
        of[lane].append((start, until))
    both = figures.busy_share([*of["rollout"], *of["train"]], since, until)
    shares = {lane: round(figures.busy_share(of[lane], since, until), 4) for lane in ("rollout", "env", "train")}
    return {**shares, "idle": round(1 - both, 4)}


def _tokens(steps: Iterable[Step]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for step in steps:
        found[step.tenant] += step.tokens
    return dict(found)


def _kv(engine: Mapping[str, Any]) -> dict[str, Any]:
    """In bytes: the budget, what is reserved by tenant, and what the sampler's cache really holds, all of it and by tenant.

    What is shared within a tenant the sampler counts for each who shares it, so its counts divide the measured sum among tenants.
    """
    budget = engine.get("kv", {}).get("budget_bytes")
    share, counts = (engine.get("sampler", {}).get(name) for name in ("kv_used", "kv_tokens"))
    used = None if share is None or budget is None else round(share * budget)
    tokens = sum(counts.values()) if counts else 0
    reserved: dict[str, int] = defaultdict(int)
    for job in engine["open"]:
        if job["kv_held"]:
            reserved[job["tenant"]] += job["kv_bytes"]
    return {
        "budget": budget,
        "reserved": dict(sorted(reserved.items(), key=lambda pair: -pair[1])),
        "used": used,
        "used_by": {tenant: round(used * count / tokens) for tenant, count in counts.items()} if used and tokens else {},
    }


def pulses(now: datetime) -> dict[str, Any]:
    try:
        return pulse.pulses(now)
    except Exception as error:  # the cache's client has no common base for its errors, and the page must say that it is down
        return {
            kind: {"alive": False, "seconds": None, "error": f"the cache does not answer: {type(error).__name__}"} for kind in pulse.KINDS
        }


def _names(engine: Mapping[str, Any], steps: Sequence[Step]) -> dict[str, dict[str, Any]]:
    jobs = {step.job: step.name for step in steps}
    wanted = {job["job"] for job in engine["open"]} - jobs.keys()
    jobs |= dict(Job.objects.filter(public_id__in=wanted).values_list("public_id", "name"))
    tenants = {job["tenant"] for job in engine["open"]} | {step.tenant for step in steps} | {share["tenant"] for share in engine["shares"]}
    tenants |= set(engine.get("sampler", {}).get("kv_tokens") or ())
    owners = {step.job: step.tenant for step in steps} | {job["job"]: job["tenant"] for job in engine["open"]}
    return {"jobs": jobs, "tenants": told_apart(tenants), "owners": owners}


def totals() -> dict[str, int]:
    """Money of all tenants together, in micro-units."""
    found = Account.objects.aggregate(balance=Sum("balance_micros"), held=Sum("held_micros"))
    return {name: int(value or 0) for name, value in found.items()}
