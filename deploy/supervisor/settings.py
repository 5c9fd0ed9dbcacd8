"""Where an embedded installation keeps its things and which parts it starts itself. Everything comes from the environment.

What the portal and the engine need is parsed by their own settings; here only what both must agree on is made explicit, so that all
parts see the same folders, ports and models whatever the working directory.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from engine import settings as engine_settings

ROOT = Path(__file__).resolve().parent.parent.parent


class BadSettings(ValueError):
    """A setting that cannot work; the text names the variable and the fix."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """``own_engine`` and ``own_valkey``: start them here; False where the environment names one that runs elsewhere."""

    root: Path
    state: Path
    runtime: Path
    python: str
    host: str
    web_port: int
    engine_url: str
    model: str
    own_engine: bool
    own_valkey: bool
    production: bool
    portal_cores: tuple[int, ...]

    @property
    def mail(self) -> Path:
        """Where an installation without a mail server files its mail (portal.settings)."""
        return self.state / "mail"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def lock_path(self) -> Path:
        return self.state / "run" / "supervisor.lock"

    @property
    def url(self) -> str:
        return f"http://{'127.0.0.1' if self.host in ('0.0.0.0', '::') else self.host}:{self.web_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What every part gets on top of the supervisor's own environment."""
        return {
            "MARLAAS_STATE": str(self.state),
            "MARLAAS_RUNTIME": str(self.runtime),
            "MARLAAS_WEB_PORT": str(self.web_port),
            "MARLAAS_ENGINE_URL": self.engine_url,
            "MARLAAS_MODEL": self.model,
            "PYTHONUNBUFFERED": "1",
            "PYTHONPATH": str(self.root),
        }

    def make_dirs(self) -> None:
        for folder in (self.state, self.logs, self.state / "run", self.runtime):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def check_ports(self) -> None:
        """Raise ``BadSettings`` when a port that one of our parts will listen on is taken."""
        taken = [(self.host, self.web_port, "PORT")]
        if self.own_engine:
            host, _, port = self.engine_url.removeprefix("http://").rpartition(":")
            taken.append((host, int(port), "MARLAAS_ENGINE_PORT"))
        for host, port, variable in taken:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                except OSError as error:
                    raise BadSettings(f"Port {port} on {host} cannot be used ({error.strerror}). Choose another: {variable}=…") from None


def load(environment: Mapping[str, str] = os.environ) -> Settings:
    """Raises ``BadSettings`` with a line per bad variable."""
    web_port = _port(environment, "MARLAAS_WEB_PORT", 8800)
    engine_url = environment.get("MARLAAS_ENGINE_URL") or f"http://127.0.0.1:{_port(environment, 'MARLAAS_ENGINE_PORT', web_port + 1)}"
    own_engine = not environment.get("MARLAAS_ENGINE_URL")
    try:
        engine = engine_settings.load(engine_url=engine_url)
    except engine_settings.SettingsError as error:
        raise BadSettings(str(error)) from None
    return Settings(
        root=ROOT,
        state=engine.state,
        runtime=engine.runtime_dir,
        python=sys.executable,
        host=environment.get("MARLAAS_WEB_HOST") or "127.0.0.1",
        web_port=web_port,
        engine_url=engine.engine_url,
        model=engine.model,
        own_engine=own_engine,
        own_valkey=not environment.get("MARLAAS_REDIS_URL"),
        production=engine.production,
        portal_cores=_portal_cores(engine.rollout_core_ids, engine.train_core_ids) if own_engine else (),
    )


def _portal_cores(rollout: tuple[int, ...], train: tuple[int, ...]) -> tuple[int, ...]:
    """The portal keeps off the sampler's cores, which are always busy, and off the trainer's where there are others."""
    ours = os.sched_getaffinity(0)
    return tuple(sorted(ours - set(rollout) - set(train) or ours & set(train) or ours))


def _port(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name) or str(default)
    if not (text.isdigit() and 1 <= int(text) <= 65535):
        raise BadSettings(f"{name}={text}: must be a port number between 1 and 65535")
    return int(text)
