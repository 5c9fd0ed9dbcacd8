"""Which processes belong to the engine that runs on this state folder: for measuring, and for whoever looks after it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from engine.runtime import reaper
from engine.settings import EngineSettings


def path(settings: EngineSettings) -> Path:
    return settings.runtime_dir / "engine.json"


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
