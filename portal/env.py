"""The portal's settings as the environment gives them: parsed once, checked at start, each bad one named with its fix.

Embedded (the default) everything has a value: SQLite and generated secrets under the state directory, Valkey on a Unix socket in the
runtime directory. With ``MARLAAS_PRODUCTION=1`` nothing insecure is assumed: what is missing refuses to start.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import BeforeValidator, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

ROOT = Path(__file__).resolve().parent.parent
ENGINE_URL = "http://127.0.0.1:8801"
MAIN_ENGINE = "main"


# Written with commas, as in ml.example.org,www.example.org.
Words = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(lambda v: tuple(w.strip() for w in v.split(",") if w.strip()) if isinstance(v, str) else v)
]


def _named_engines(text: str) -> dict[str, str]:
    """Name → URL of ``qwen=http://10.0.0.2:8801 llama=http://10.0.0.3:8801``. Raises ``ValueError``."""
    found: dict[str, str] = {}
    for part in text.split():
        name, _, url = part.partition("=")
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name) or not url.startswith(("http://", "https://")):
            raise ValueError("write it as qwen=http://10.0.0.2:8801, several with spaces between them")
        if name in found or name == MAIN_ENGINE:
            raise ValueError(f"{name} is taken; give each engine a name of its own ({MAIN_ENGINE} is the one at MARLAAS_ENGINE_URL)")
        found[name] = url.rstrip("/")
    return found


class BadSettings(SystemExit):
    """Settings that the portal refuses to start with; its text names each variable and the fix."""


class Env(BaseSettings):
    """Field ``engine_url`` is read from ``MARLAAS_ENGINE_URL``, and so on; ``database_url`` from ``DATABASE_URL``."""

    model_config = SettingsConfigDict(env_prefix="MARLAAS_", env_ignore_empty=True, frozen=True, extra="ignore")

    production: bool = False
    debug: bool = False
    state: Path = ROOT / "var"
    runtime: Path | None = None
    secret_key: SecretStr | None = None
    secret_key_fallbacks: Words = ()
    allowed_hosts: Words = ("localhost", "127.0.0.1", "[::1]")
    trusted_origins: Words = ()
    web_port: int = Field(default=8800, ge=1, le=65535)
    engine_url: str = Field(default_factory=lambda given: running_engine(given.get("state", ROOT / "var")) or ENGINE_URL)
    engines: Annotated[dict[str, str], NoDecode, BeforeValidator(lambda v: _named_engines(v) if isinstance(v, str) else v)] = {}
    engine_secret: SecretStr | None = None
    engine_secret_fallbacks: Words = ()
    model: str = "tiny-math"
    redis_url: str | None = None
    database_url: str | None = Field(default=None, validation_alias="DATABASE_URL")
    owner_database_url: SecretStr | None = None
    email_url: SecretStr | None = None
    email_from: str = "MARLaaS <marlaas@localhost>"
    max_upload_bytes: int = Field(default=4 * 1024**3, ge=1024)
    currency: str = Field(default="USD", pattern="^[A-Z]{3}$")
    starting_credit: Decimal = Field(default=Decimal(1000), ge=0, le=10**9, max_digits=16, decimal_places=6)
    stripe_key: SecretStr | None = None
    stripe_webhook_secret: SecretStr | None = None
    stripe_api_base: str = ""
    grace_days: int = Field(default=7, ge=0, le=365)
    log_json: bool | None = None
    metrics_token: SecretStr | None = None
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    trusted_proxies: int = Field(default=0, ge=0, le=5)
    api_calls_per_token: int = Field(default=600, ge=1, le=1_000_000)
    api_calls_per_tenant: int = Field(default=3000, ge=1, le=1_000_000)

    @field_validator("state", "runtime")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().resolve() if value else None

    @field_validator("engine_url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError("must begin with http:// or https://, as in http://127.0.0.1:8801")
        return value.rstrip("/")

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, value: str | None) -> str | None:
        if value is not None and not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must begin with redis://, rediss:// or unix://")
        return value

    @field_validator("stripe_key")
    @classmethod
    def _secret_key_of_stripe(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("sk_test_", "sk_live_", "rk_test_", "rk_live_")):
            raise ValueError("must be a secret or restricted key of Stripe: sk_live_…, sk_test_…, rk_live_… or rk_test_…")
        return value

    @model_validator(mode="after")
    def _stripe_is_whole(self) -> Env:
        secret = self.stripe_webhook_secret.get_secret_value() if self.stripe_webhook_secret else ""
        if self.stripe_key is not None and not secret.startswith("whsec_"):
            raise ValueError("MARLAAS_STRIPE_WEBHOOK_SECRET must be set with MARLAAS_STRIPE_KEY: whsec_…, of the endpoint /stripe/webhook/")
        return self

    @model_validator(mode="after")
    def _refuse_insecure_production(self) -> Env:
        if self.production and (problems := _insecure(self)):
            raise ValueError("\n  ".join(problems))
        return self

    @property
    def runtime_dir(self) -> Path:
        """Short on purpose: the path of a Unix socket ends at 107 bytes."""
        digest = hashlib.sha256(str(self.state).encode()).hexdigest()[:8]
        return self.runtime or Path(f"/tmp/marlaas-{os.getuid()}-{digest}")

    @property
    def redis(self) -> str:
        return self.redis_url or f"unix://{self.runtime_dir}/valkey.sock"

    @property
    def celery_broker(self) -> str:
        return self.redis.replace("unix://", "redis+socket://", 1)

    def django_secret(self) -> str:
        return self.secret_key.get_secret_value() if self.secret_key else generated_secret(self.state / "django-secret")

    def engine_bearer(self) -> str:
        return self.engine_secret.get_secret_value() if self.engine_secret else generated_secret(self.state / "engine-secret")

    def metrics_bearer(self) -> str:
        """ "" (nobody may scrape) in production where none is given."""
        if self.metrics_token is not None or self.production:
            return self.metrics_token.get_secret_value() if self.metrics_token else ""
        return generated_secret(self.state / "metrics-token")

    def database(self, *, migrating: bool = False) -> dict[str, Any]:
        """``migrating``: as the role that owns the tables, where there is one of its own."""
        if migrating and self.owner_database_url:
            return database(self.owner_database_url.get_secret_value())
        return sqlite(self.state / "db.sqlite3") if self.database_url is None else database(self.database_url)


def running_engine(state: Path) -> str:
    """Where the engine of the supervisor answers that runs on this state folder, or last ran there and was killed; "" if none has.

    So that a command typed beside it (``doctor``, ``compare_engine``) finds the engine on whatever port it was started.
    """
    try:
        found = json.loads((state / "run" / "supervisor.lock").read_text() or "{}").get("engine_url", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) and found.startswith(("http://", "https://")) else ""


def _insecure(env: Env) -> list[str]:
    """What production needs and lacks, one sentence per variable."""
    key = env.secret_key.get_secret_value() if env.secret_key else ""
    local = {"localhost", "127.0.0.1", "[::1]"}
    checks = (
        (env.debug, "MARLAAS_DEBUG must be off in production"),
        (len(key) < 50, "MARLAAS_SECRET_KEY must be set to at least 50 random characters"),
        (
            len(key) >= 50 and len(set(key)) < 15,
            "MARLAAS_SECRET_KEY repeats itself; make one: python -c 'import secrets; print(secrets.token_urlsafe(64))'",
        ),
        (env.engine_secret is None, "MARLAAS_ENGINE_SECRET must be set to the engine's bearer secret"),
        (
            not set(env.allowed_hosts) - local or "*" in env.allowed_hosts,
            "MARLAAS_ALLOWED_HOSTS must name the site, as in ml.example.org",
        ),
        (
            not env.trusted_origins or not all(origin.startswith("https://") for origin in env.trusted_origins),
            "MARLAAS_TRUSTED_ORIGINS must name the site's addresses with TLS, as in https://ml.example.org",
        ),
        (
            not (env.database_url or "").startswith("postgres"),
            "DATABASE_URL must name a PostgreSQL database, as in postgres://user:password@host/name",
        ),
        (env.redis_url is None, "MARLAAS_REDIS_URL must name a Redis or Valkey server, as in redis://host:6379/0"),
        (env.email_url is None, "MARLAAS_EMAIL_URL must name a mail server, as in smtps://user:password@host:465"),
    )
    return [message for bad, message in checks if bad]


def load() -> Env:
    """The environment's settings; raises ``BadSettings`` naming each variable that is wrong."""
    try:
        return Env()
    except ValidationError as error:
        lines = [f"  {_variable(e['loc'])}{e['msg'].removeprefix('Value error, ')}" for e in error.errors()]
        raise BadSettings("The portal does not start with these settings:\n" + "\n".join(lines)) from None


def _variable(location: tuple[int | str, ...]) -> str:
    if not location:
        return ""
    name = str(location[0])
    return f"{name if name == 'DATABASE_URL' else 'MARLAAS_' + name.upper()}: "


def generated_secret(path: Path) -> str:
    """The secret in ``path``; made there, mode 600, by the first process that asks (several may ask at once)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = None
    if not path.exists():
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(64))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(staged, path)  # unlike a rename, never replaces a secret that another process has just made
        except FileExistsError:
            pass
        finally:
            staged.unlink()
    return path.read_text().strip()


def sqlite(path: Path) -> dict[str, Any]:
    """WAL alone loses writers to lock errors; with IMMEDIATE transactions they queue for up to ``timeout`` seconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
    }
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": path, "OPTIONS": options}


def database(url: str) -> dict[str, Any]:
    """Django's form of a database URL (postgres:// or sqlite:///path); raises ``BadSettings`` on any other."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return sqlite(Path(unquote(parts.path)))
    if parts.scheme not in ("postgres", "postgresql"):
        raise BadSettings("DATABASE_URL: must begin with postgres:// or sqlite://")
    query = dict(pair.partition("=")[::2] for pair in parts.query.split("&") if pair)
    return {
        "ENGINE": "django.db.backends.postgresql",
        # A cursor on the server would outlive the statement that says whose rows it may see (tenants.walls_rows).
        "DISABLE_SERVER_SIDE_CURSORS": True,
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": unquote(query.pop("host", "")) or unquote(parts.hostname or ""),
        "PORT": str(parts.port or ""),
        # Under ASGI a connection per thread would never be reused; a pool is. Each is looked at before it is used, since a database that
        # was restarted has left dead ones there.
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"pool": {"min_size": 1, "max_size": 20, "timeout": 10}, **{key: unquote(value) for key, value in query.items()}},
    }


def email(url: str) -> dict[str, Any]:
    """Django's mail settings of an smtp:// or smtps:// URL."""
    parts = urlsplit(url)
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise BadSettings("MARLAAS_EMAIL_URL: must look like smtp://user:password@host:587 or smtps://…:465")
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or (465 if parts.scheme == "smtps" else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": parts.scheme == "smtps",
        "EMAIL_USE_TLS": parts.scheme == "smtp",
        "EMAIL_TIMEOUT": 10,
    }
