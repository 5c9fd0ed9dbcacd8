"""The checks. Each looks at one thing through what ``World`` gives it, changes nothing that stays, and ends in seconds."""

from __future__ import annotations

import shutil
import socket
import ssl
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from allauth.mfa.models import Authenticator
from django.conf import settings
from django.core.cache import cache
from django.core.mail import get_connection
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor

from portal import gateway, pulse
from portal.accounts.factors import unopened
from portal.doctor.findings import Finding, bad, ok, warn

CLOCK_SECONDS = 5.0
LEAST_FREE_SHARE = 0.1
LEAST_FREE_BYTES = 2 * 1024**3
_TIERS = {"bwrap", "plain"}


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """What lies outside of this process; tests give another one."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    disk_usage: Callable[[Path], Any] = shutil.disk_usage
    python: tuple[int, int] = field(default_factory=lambda: sys.version_info[:2])
    stripe: Callable[[], str] | None = None  # the account's mode, "live" or "test"; raises what the client raises
    publish: Callable[[], None] | None = None  # put a message on the broker and take it away again


def database(world: World) -> Iterator[Finding]:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        where = "DATABASE_URL" if connection.vendor == "postgresql" else "MARLAAS_STATE"
        yield bad("database", "database_away", f"does not answer: {_short(error)}", f"start it, or correct {where}")
        return
    if connection.vendor == "sqlite" and settings.ENV.production:
        yield bad("database", "sqlite_in_production", "is SQLite", "set DATABASE_URL to a PostgreSQL database")
    if connection.vendor == "postgresql":
        yield from _postgres()
    executor = MigrationExecutor(connection)
    if missing := len(executor.migration_plan(executor.loader.graph.leaf_nodes())):
        mend = "run python manage.py migrate, with MARLAAS_OWNER_DATABASE_URL where the database has roles"
        yield bad("database", "not_migrated", f"lacks {missing} migrations", mend)
    else:
        yield ok("database", f"{connection.vendor} answers and is migrated")


def _postgres() -> Iterator[Finding]:
    version = connection.pg_version // 10000
    if version < 15:
        yield bad("database", "postgres_too_old", f"is PostgreSQL {version}", "upgrade it to 15 or later")
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user")
        if cursor.fetchone() == (True,):
            mend = "make the roles (deploy/UPGRADE.md, a database of before there were roles) and set DATABASE_URL to marlaas_app"
            yield warn("database", "superuser", "this role is above row-level security, the second wall between tenants", mend)


def broker(world: World) -> Iterator[Finding]:
    mark = uuid.uuid4().hex
    try:
        cache.set("doctor", mark, 10)
        found = cache.get("doctor")
    except Exception as error:  # its client's errors have no common base
        mend = "start Valkey or Redis, or correct MARLAAS_REDIS_URL"
        yield bad("broker", "broker_away", f"does not answer: {_short(error)}", mend)
        return
    if found != mark:
        yield bad("broker", "broker_forgets", "forgets what it was told at once", "raise its maxmemory: it drops at once what it is given")
        return
    if world.publish is not None:
        try:
            world.publish()
        except Exception as error:  # kombu's errors have no common base either
            mend = "raise its maxmemory, or find what fills it; its policy stays noeviction, since others would drop tasks"
            yield bad("broker", "queue_refuses", f"takes no task: {_short(error)}", mend)
            return
    yield ok("broker", "answers and remembers")


def processes(world: World) -> Iterator[Finding]:
    try:
        found = pulse.pulses(world.now())
    except Exception:  # the broker's check has said it
        return
    mends = {
        "ingester": "start it (python manage.py ingest); where it runs, read ingester.log",
        "worker": "start it (celery -A portal worker -B); where it runs, read worker.log",
    }
    for kind, known in found.items():
        if known["alive"]:
            yield ok(kind, f"last heard {known['seconds']:.0f} s ago")
        else:
            heard = "was never heard" if known["seconds"] is None else f"was last heard {known['seconds']:.0f} s ago"
            yield bad(kind, f"{kind}_silent", heard, mends[kind])


def engine(world: World) -> Iterator[Finding]:
    """Of each engine: reached, with the right secret, ready, its sandbox, its clock; and who serves the default model."""
    served = set()
    for name in gateway.names():
        overview = yield from _reached(name)
        if overview is not None:
            served.add(overview.get("model", ""))
            yield from _engine_parts(name, overview, world.now())
    if served and settings.DEFAULT_MODEL not in served:
        models = " or ".join(sorted(served))
        mend = f"set MARLAAS_MODEL={models} for the portal too"
        yield warn("engine", "another_model", f"serves {models}, new jobs ask for {settings.DEFAULT_MODEL}", mend)


def _named(name: str) -> str:
    """What a finding about this engine begins with; "" where there is but one."""
    return f"{gateway.title(name)}: " if len(gateway.names()) > 1 else ""


def _reached(name: str) -> Generator[Finding, None, dict[str, Any] | None]:
    """Its overview, or the reason why there is none."""
    of, where = _named(name), f"MARLAAS_ENGINES ({name}={gateway.url(name)})" if name else f"MARLAAS_ENGINE_URL ({gateway.url(name)})"
    try:
        health = gateway.engine(name).health()
    except gateway.EngineDown as error:
        yield bad("engine", "engine_away", of + _short(error), f"start it, or correct {where}")
        return None
    if not health.get("ok"):
        stage = health.get("stage", "")
        yield bad("engine", "engine_not_ready", f"{of}is not ready: {stage}", "wait, or read engine-launcher.log and engine-manager.log")
        return None
    try:
        overview = gateway.engine(name).overview()
    except gateway.EngineDown as error:
        if " 401" in str(error):
            mend = "give portal and engine the same MARLAAS_ENGINE_SECRET"
            yield bad("engine", "wrong_secret", f"{of}refuses this portal's secret", mend)
        else:
            yield bad("engine", "engine_away", of + _short(error), "read engine-manager.log")
        return None
    except gateway.EngineRefused as error:
        yield bad(
            "engine", "engine_too_old", f"{of}does not know what this portal asks: {_short(error)}", "run the same release on both sides"
        )
        return None
    yield ok("engine", f"{of}{overview.get('model', '')} is ready, manager {overview.get('epoch', '?')}")
    return overview


def _engine_parts(name: str, overview: dict[str, Any], now: datetime) -> Iterator[Finding]:
    of = _named(name)
    tier = overview.get("sandbox", {}).get("tier", "")
    if tier in _TIERS:
        yield ok("sandbox", f"{of}{tier} holds tenants' code")
    else:
        mend = "run the engine on a kernel with Landlock, outside of containers that forbid seccomp; reasons: GET /status"
        say = bad if settings.ENV.production or tier != "weak" else warn
        yield say("sandbox", "sandbox_weak", f"{of}is {tier or 'unknown'}: Python rewards are not safe or do not run", mend)
    apart = abs((now - datetime.fromisoformat(overview["at"])).total_seconds()) if "at" in overview else 0.0
    if apart > CLOCK_SECONDS:
        yield bad(
            "clock", "clocks_apart", f"{of}the engine's is {apart:.0f} s from this one", "run chrony or systemd-timesyncd on both machines"
        )
    else:
        yield ok("clock", "agrees with the engine's")
    if overview.get("admission", "open") != "open":
        yield warn("engine", "admission_closed", f"{of}admits nobody: {overview['admission']}", "open admission on /console/")
    if disk := overview.get("disk"):
        yield _room("disk", "engine_disk", f"{of}of the engine's disk ", disk["free_bytes"], disk["total_bytes"])
    if dead := [worker["name"] for worker in overview.get("workers", []) if not worker["alive"]]:
        yield bad("engine", "worker_down", f"{of}{', '.join(dead)} is down", "read its log engine-*.log; it is started again by itself")


def storage(world: World) -> Iterator[Finding]:
    """Written, read and removed in each folder that must last; free space."""
    for name, folder in (("blobs", Path(settings.BLOBS_DIR)), ("state", Path(settings.STATE))):
        probe = folder / f".doctor-{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"doctor")
            same = probe.read_bytes() == b"doctor"
            probe.unlink()
        except OSError as error:
            yield bad(
                "storage",
                f"{name}_not_writable",
                f"{folder}: {error.strerror}",
                "let this process's user write there, or set MARLAAS_STATE",
            )
            continue
        if not same:
            yield bad("storage", f"{name}_not_writable", f"{folder} does not give back what was written", "look at the disk")
            continue
        yield ok("storage", f"{folder} is written and read")
    usage = world.disk_usage(Path(settings.STATE))
    yield _room("disk", "disk", "", usage.free, usage.total)


def _room(check: str, code: str, of: str, free_bytes: int, total_bytes: int) -> Finding:
    """``of``: what the finding about this disk begins with."""
    share = free_bytes / total_bytes
    words = f"{of}{free_bytes / 1e9:.1f} GB ({share:.0%}) free"
    if free_bytes < LEAST_FREE_BYTES or share < LEAST_FREE_SHARE / 2:
        return bad(check, f"{code}_full", words, "remove ended jobs' versions (deploy/OPERATORS.md, the disk is full) or enlarge it")
    if share < LEAST_FREE_SHARE:
        return warn(check, f"{code}_filling", words, "remove ended jobs' versions or enlarge it before it is full")
    return ok(check, words)


def mail(world: World) -> Iterator[Finding]:
    if settings.EMAIL_BACKEND.endswith("filebased.EmailBackend"):
        yield warn("mail", "mail_filed", "is written to files and reaches nobody", "set MARLAAS_EMAIL_URL=smtps://user:password@host:465")
        return
    try:
        sender = get_connection(fail_silently=False)
        sender.open()
        sender.close()
    except (OSError, ssl.SSLError) as error:  # smtplib's errors are OSErrors
        code = "mail_refused" if "auth" in str(error).lower() else "mail_away"
        yield bad("mail", code, f"the server does not take us: {_short(error)}", "correct MARLAAS_EMAIL_URL: host, port, user and password")
        return
    if settings.DEFAULT_FROM_EMAIL.endswith("@localhost>"):
        yield warn("mail", "mail_from_localhost", "is sent from an address at localhost", "set MARLAAS_EMAIL_FROM to one of your domain")
    yield ok("mail", "the server takes us")


def stripe(world: World) -> Iterator[Finding]:
    key = settings.STRIPE_KEY
    if not key:
        yield ok("stripe", "is not used; operators grant credit")
        return
    if settings.ENV.production and "_test_" in key:
        yield bad(
            "stripe", "stripe_test_key", "has a key for tests in production", "set MARLAAS_STRIPE_KEY to the live account's restricted key"
        )
    if world.stripe is None:
        return
    try:
        mode = world.stripe()
    except Exception as error:  # the SDK's errors need not be installed for this to say something
        yield bad(
            "stripe", "stripe_refuses", f"does not answer to our key: {_short(error)}", "correct MARLAAS_STRIPE_KEY, or wait for them"
        )
        return
    yield ok("stripe", f"answers, {mode}")


def versions(world: World) -> Iterator[Finding]:
    found = ".".join(map(str, world.python))
    if not (3, 11) <= world.python < (3, 13):
        yield bad("versions", "python", f"Python {found}", "use Python 3.11 or 3.12")
    else:
        yield ok("versions", f"Python {found}")


def web(world: World) -> Iterator[Finding]:
    """What TLS and the proxy in front need. Only in production: embedded, nobody else reaches the site."""
    env = settings.ENV
    if not env.production:
        return
    if not env.trusted_origins:
        mend = "set MARLAAS_TRUSTED_ORIGINS=https://" + next(iter(env.allowed_hosts), "ml.example.org")
        yield bad("web", "no_trusted_origin", "forms behind a proxy are refused", mend)
    elif plain := [origin for origin in env.trusted_origins if not origin.startswith("https://")]:
        yield bad("web", "plain_origin", f"{plain[0]} is not encrypted", "write it with https://")
    if not env.trusted_proxies:  # there is one: this process speaks no TLS
        says = "everybody has the address of the proxy in front, in limits of logins, allow-lists and the audit log"
        yield warn("web", "no_trusted_proxy", says, "set MARLAAS_TRUSTED_PROXIES to the number of your proxies, 1 as a rule")
    if not settings.METRICS_TOKEN:
        yield warn("web", "no_metrics_token", "/metrics is closed to everybody", "set MARLAAS_METRICS_TOKEN and give it to Prometheus")
    for url in (env.engine_url, *settings.ENGINES.values()):
        if urlsplit(url).scheme == "http" and not _is_near(urlsplit(url).hostname or ""):
            mend = "keep the engine in a private network, or put TLS in front of it and write https://"
            yield warn("web", "plain_engine", f"tenants' prompts go to {url} in plain text over a public network", mend)


def _is_near(host: str) -> bool:
    import ipaddress

    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return True  # the engine's check says that it cannot be reached
    return all(ipaddress.ip_address(address.partition("%")[0]).is_private for address in addresses)


def factors(world: World) -> Iterator[Finding]:
    """Whether people's second factors can be opened, today and without the earlier keys."""
    try:
        earlier, lost = unopened(Authenticator.objects.all())
    except DatabaseError:  # the database's check has said it
        return
    if lost:
        mend = "put the key that they were sealed under into MARLAAS_SECRET_KEY_FALLBACKS"
        yield bad("factors", "factors_shut", f"{lost} second factors open under no key that is here", mend)
    if earlier:
        mend = "run python manage.py reseal_factors before that key is taken out"
        yield warn("factors", "factors_under_earlier_key", f"{earlier} second factors are sealed under an earlier key", mend)
    if not lost and not earlier:
        yield ok("factors", "every second factor opens under the key of today")


CHECKS: tuple[Callable[[World], Iterator[Finding]], ...] = (
    *(versions, database, broker, processes, engine, storage, mail, stripe, web, factors),
)


def examine(world: World) -> list[Finding]:
    """Every check's findings; a check that breaks is a finding itself."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found.extend(check(world))
        except Exception as error:  # a doctor that dies at the first patient helps nobody
            says = f"the check itself failed: {type(error).__name__}: {_short(error)}"
            found.append(bad(check.__name__, "check_failed", says, "report this, with the line above"))
    return found


def _short(error: object) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
