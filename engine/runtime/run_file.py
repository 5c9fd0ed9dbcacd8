"""One engine per state folder, and which processes belong to it: for measuring, and for whoever looks after it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from engine.runtime import reaper
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings


def path(settings: EngineSettings) -> Path:
    return settings.runtime_dir / "engine.json"


@contextmanager
def only_one(settings: EngineSettings) -> Iterator[None]:
    """Hold the state folder; the kernel lets go of it when this process dies. Raises ``StartFailed`` while another engine holds it."""
    with open(settings.engine_dir / "launcher.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = (read(settings) or {}).get("pid", "unknown")
            raise StartFailed(f"an engine (process {other}) already runs on {settings.state}; stop it, or set MARLAAS_STATE") from None
        yield


def write(settings: EngineSettings, tag: str) -> None:
    staged = path(settings).with_suffix(".new")
    staged.write_text(json.dumps({"pid": os.getpid(), "tag": tag, "url": settings.engine_url}))
    staged.replace(path(settings))


def remove(settings: EngineSettings) -> None:
    path(settings).unlink(missing_ok=True)


def read(settings: EngineSettings) -> dict[str, Any] | None:
    try:
        return json.loads(path(settings).read_text())
    except FileNotFoundError:
        return None


def processes(settings: EngineSettings) -> list[int]:
    """The launcher and everything it started; none when no engine runs here."""
    run = read(settings)
    return [run["pid"], *reaper.tagged(run["tag"])] if run else []
