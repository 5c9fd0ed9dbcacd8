"""The engine's settings: environment variables with the prefix ``MARLAAS_``, parsed once, refused loudly.

Light on purpose: the launcher, the manager and the HTTP actor read it without torch, vllm or ray.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from engine import device
from engine.core.policy import REGIMES
from engine.grader_spec import BASE_JUDGE

REPOSITORY = Path(__file__).resolve().parent.parent
PREFIX = "MARLAAS_"


class SettingsError(ValueError):
    """Bad settings; the message names each variable and how to mend it."""


class EngineSettings(BaseSettings):
    """Field ``x`` is read from ``MARLAAS_X``. Sizes carry their unit; ``cores`` are written as ``0,2-4``."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    production: bool = False
    state: Path = REPOSITORY / "var"
    runtime: Path | None = None
    engine_url: str = "http://127.0.0.1:8801"
    engine_secret: SecretStr | None = None
    engine_secret_fallbacks: SecretStr = SecretStr("")
    metrics_token: SecretStr = SecretStr("")
    model: Annotated[str, Field(min_length=1)] = "tiny-math"
    device: Literal["auto", "cuda", "npu", "cpu"] = "auto"
    rollout_cores: str | None = None
    train_cores: str | None = None
    rollout_replicas: Annotated[int, Field(ge=1, le=64)] = 1
    train_ranks: Annotated[int, Field(ge=1, le=64)] = 1
    train_groups: Annotated[int, Field(ge=1, le=64)] = 1
    rollout_spread: Literal["pack", "spread", "strict_spread"] = "spread"
    train_spread: Literal["pack", "spread", "strict_spread"] = "pack"
    rollout_nodes: Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]*)?$")] = ""
    train_nodes: Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]*)?$")] = ""
    accelerator_share: Annotated[float | None, Field(gt=0, le=1)] = None
    job_slots: Annotated[int, Field(ge=1, le=128)] = 8
    max_rank: Annotated[int, Field(ge=1, le=512)] = 16
    max_context_tokens: Annotated[int | None, Field(ge=16)] = None
    regime: str = "marlaas"
    kv_gib: Annotated[float | None, Field(gt=0, le=4096)] = None
    train_activation_gib: Annotated[float, Field(gt=0, le=4096)] = 2.0
    dense_lora: bool = True
    reward_sandbox: Literal["auto", "bwrap", "plain", "weak"] = "auto"
    reward_workers: Annotated[int, Field(ge=1, le=1024)] = 64
    log_json: bool | None = None
    niceness: Annotated[int, Field(ge=0, le=19)] = 10
    object_store_mb: Annotated[int, Field(ge=80, le=1_000_000)] = 256
    search_endpoints: Annotated[dict[str, str], NoDecode] = {}
    judges: Annotated[dict[str, str], NoDecode] = {}
    judge_keys: SecretStr = SecretStr("")
    start_deadline_seconds: Annotated[float, Field(gt=0)] = 600.0
    call_deadline_seconds: Annotated[float, Field(gt=0)] = 60.0

    @field_validator("production", mode="before")
    @classmethod
    def _empty_is_no(cls, value: object) -> object:
        return value or False

    @field_validator("log_json", mode="before")
    @classmethod
    def _empty_is_as_usual(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("state", "runtime", mode="after")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value.expanduser().resolve() if value else None

    @field_validator("rollout_cores", "train_cores")
    @classmethod
    def _cores_are_ours(cls, value: str | None) -> str | None:
        if value is None:
            return None
        if missing := set(device.parse_cores(value)) - device.available_cores():
            ours = ",".join(map(str, sorted(device.available_cores())))
            raise ValueError(f"core {min(missing)} is not available to this process; choose among {ours}")
        return value

    @field_validator("search_endpoints", mode="before")
    @classmethod
    def _named_urls(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        named = [part.partition("=") for part in value.split()]
        for name, _, url in named:
            if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", name) or urlsplit(url).scheme not in ("http", "https"):
                raise ValueError("write it as wiki=https://en.wikipedia.org/w/api.php, several with spaces between them")
        return {name: url for name, _, url in named}

    @field_validator("judges", mode="before")
    @classmethod
    def _named_judges(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        named = [part.partition("=") for part in value.split()]
        for name, _, place in named:
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,63}", name) or not re.fullmatch(r"[^@\s]+@https?://[^@\s]+", place):
                raise ValueError("write it as strict=MODEL@http://judge.example:8000/v1, several with spaces between them")
            if name == BASE_JUDGE:
                raise ValueError(f"{BASE_JUDGE} always means the base model itself; choose another name")
        return {name: place for name, _, place in named}

    @field_validator("judge_keys")
    @classmethod
    def _named_keys(cls, value: SecretStr) -> SecretStr:
        if any(not name or not key for name, _, key in (part.partition("=") for part in value.get_secret_value().split())):
            raise ValueError("write it as strict=KEY, several with spaces between them")
        return value

    @field_validator("regime")
    @classmethod
    def _known_regime(cls, value: str) -> str:
        if value not in REGIMES:
            raise ValueError(f"unknown regime; choose among {', '.join(REGIMES)}")
        return value

    @field_validator("engine_url")
    @classmethod
    def _plain_http(cls, value: str) -> str:
        url = urlsplit(value)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError("write it as http://127.0.0.1:8801")
        return value.rstrip("/")

    @model_validator(mode="after")
    def _short_runtime(self) -> EngineSettings:
        # Ray puts sockets about 60 bytes below its directory, and a Unix socket's path ends at 107 bytes.
        if len(str(self.runtime_dir)) > 45:
            raise ValueError(f"{PREFIX}RUNTIME: {self.runtime_dir} is too long for Unix sockets; choose a path of at most 45 characters")
        return self

    @property
    def runtime_dir(self) -> Path:
        return self.runtime or Path("/tmp") / f"marlaas-{os.getuid()}-{hashlib.sha256(str(self.state).encode()).hexdigest()[:8]}"

    @property
    def log_dir(self) -> Path:
        return self.state / "log"

    @property
    def logs_are_json(self) -> bool:
        return self.production if self.log_json is None else self.log_json

    @property
    def models_dir(self) -> Path:
        return self.state / "models"

    @property
    def blobs_dir(self) -> Path:
        return self.state / "blobs"

    @property
    def engine_dir(self) -> Path:
        return self.state / "engine"

    @property
    def host(self) -> str:
        return urlsplit(self.engine_url).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        url = urlsplit(self.engine_url)
        return url.port or (443 if url.scheme == "https" else 80)

    @cached_property
    def device_kind(self) -> device.Kind:
        return device.detect() if self.device == "auto" else self.device

    @property
    def rollout_core_ids(self) -> tuple[int, ...]:
        return self._core_ids(self.rollout_cores, 0)

    @property
    def train_core_ids(self) -> tuple[int, ...]:
        return self._core_ids(self.train_cores, 1)

    def _core_ids(self, text: str | None, which: int) -> tuple[int, ...]:
        if text is None and self.device_kind != "cpu":
            return ()
        return device.parse_cores(device.default_cores(device.available_cores())[which] if text is None else text)

    def device_profile(self) -> device.DeviceProfile:
        return device.profile(self.device_kind, rollout_cores=self.rollout_core_ids, kv_gib=self.kv_gib, dense_lora=self.dense_lora)

    @property
    def kv_bytes(self) -> int:
        """The KV cache of all replicas together: what admission may give away."""
        per_replica = device.default_kv_gib(self.device_kind) if self.kv_gib is None else self.kv_gib
        return int(per_replica * 2**30) * self.rollout_replicas

    def secret(self) -> str:
        """The bearer secret: from the environment, else from ``<state>/engine-secret``, which is made once, readable by its owner only."""
        if self.engine_secret is not None:
            return self.engine_secret.get_secret_value()
        return _file_secret(self.state / "engine-secret")

    def metrics_bearer(self) -> str:
        """What opens ``/metrics``, as the portal has it: in production "" (nothing but the secret) where none is given."""
        if (given := self.metrics_token.get_secret_value()) or self.production:
            return given
        return _file_secret(self.state / "metrics-token")

    def earlier_secrets(self) -> tuple[str, ...]:
        """Bearer secrets of before, which still open what was sealed under them; they admit nobody."""
        return tuple(part for part in (part.strip() for part in self.engine_secret_fallbacks.get_secret_value().split(",")) if part)

    def make_dirs(self) -> None:
        for path in (self.state, self.log_dir, self.models_dir, self.blobs_dir, self.engine_dir, self.runtime_dir):
            path.mkdir(parents=True, exist_ok=True)
        owner = self.runtime_dir.stat().st_uid
        if owner != os.getuid():  # a squatted directory under /tmp would see our sockets
            raise SettingsError(f"{PREFIX}RUNTIME: {self.runtime_dir} belongs to user {owner}; set it to a directory of your own")
        self.runtime_dir.chmod(0o700)
        self.engine_dir.chmod(0o700)  # the journal holds tenants' specs, those of earlier releases with secrets as they were typed


def _file_secret(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(fd, "w") as file:
        file.write(secrets.token_urlsafe(32))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(staged, path)  # fails where another process was first: both then read the same secret
    except FileExistsError:
        pass
    finally:
        staged.unlink()
    return path.read_text().strip()


def load(**overrides: object) -> EngineSettings:
    """The settings from the environment. Raises ``SettingsError`` that names every bad variable."""
    try:
        return EngineSettings(**overrides)
    except ValidationError as error:
        raise SettingsError("\n".join(_problem(e) for e in error.errors())) from None


def _problem(error: Any) -> str:
    message = error["msg"].removeprefix("Value error, ")
    return f"{PREFIX}{error['loc'][0].upper()}={error['input']}: {message}" if error["loc"] else message
