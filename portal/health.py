"""Is this web process alive, and is it fit to serve? Both say why not, in words that name no address and no secret.

``/healthz``: whether to restart it: no, as long as its database answers. ``/readyz``: whether to send it people: its database answers, is
migrated, and the cache answers too. What else is wrong (engine, worker, ingester) stands under ``degraded``: pages work without it and say
so themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from django.core.cache import cache
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.cache import never_cache

from portal import gateway, pulse

_PROBE = "readyz"


def healthz(request: HttpRequest) -> JsonResponse:
    if cause := database():
        return JsonResponse({"ok": False, "stage": cause}, status=503)
    return JsonResponse({"ok": True})


@never_cache
def readyz(request: HttpRequest) -> JsonResponse:
    needed = {"database": database, "migrations": migrations, "cache": cache_answers}
    causes = _causes(needed)
    degraded = {} if "database" in causes or "cache" in causes else _causes({"engine": engine, **_processes(timezone.now())})
    return JsonResponse({"ok": not causes, "causes": causes, "degraded": degraded}, status=503 if causes else 200)


def _causes(checks: dict[str, Callable[[], str]]) -> dict[str, str]:
    """What is wrong, by check; a check behind a failed database would only repeat it."""
    found: dict[str, str] = {}
    for name, check in checks.items():
        if name == "migrations" and "database" in found:
            continue
        if cause := check():
            found[name] = cause
    return found


def database() -> str:
    """Why the database is of no use; "" when it answers."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        return f"the database does not answer: {type(error).__name__}"
    return ""


def migrations() -> str:
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return f"{len(missing)} migrations are not applied; run manage.py migrate" if missing else ""


def cache_answers() -> str:
    try:
        cache.set(_PROBE, "1", 10)
        return "" if cache.get(_PROBE) == "1" else "the cache forgets what it is told"
    except Exception as error:  # its client's errors have no common base, and a probe must answer
        return f"the cache does not answer: {type(error).__name__}"


def engine() -> str:
    """What is wrong with each engine that is not ready; of one alone its name is not said."""
    causes = gateway.of_each(_engine, gateway.names())
    if len(causes) == 1:
        return causes[""]
    return "; ".join(f"{gateway.title(name)}: {cause}" for name, cause in causes.items() if cause)


def _engine(name: str) -> str:
    try:
        health = gateway.engine(name).health()
    except gateway.EngineDown:
        return "the engine does not answer"
    return "" if health.get("ok") else f"the engine is not ready: {health.get('stage', '')}"


def _processes(now: datetime) -> dict[str, Callable[[], str]]:
    def silent(kind: str) -> Callable[[], str]:
        def check() -> str:
            known = pulse.pulses(now)[kind]
            if known["alive"]:
                return ""
            return "was never heard" if known["seconds"] is None else f"was last heard {known['seconds']:.0f} s ago"

        return check

    return {kind: silent(kind) for kind in pulse.KINDS}
