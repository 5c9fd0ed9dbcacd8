"""An engine as a child process, for the demo, the bench and tests: started, waited for, stopped, and gone when its owner dies."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from typing import Any

from engine.runtime.readiness import StartFailed
from engine.settings import REPOSITORY, EngineSettings

STOP_SECONDS = 30.0
SECRETS = {"engine_secret", "engine_secret_fallbacks", "metrics_token", "judge_keys"}  # inherited, never written down again
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_libc = ctypes.CDLL(None)


class EngineChild:
    """``python -m engine serve`` with ``settings``; use as an async context manager. Raises ``StartFailed``."""

    def __init__(
        self, settings: EngineSettings, *, on_stage: Callable[[str], None] = lambda stage: None, module: str = "engine", **environment: str
    ):
        self._settings = settings
        self._on_stage = on_stage
        self._module = module
        self._environment = environment
        self._process: Process | None = None
        self.start_seconds = 0.0

    @property
    def process_id(self) -> int:
        assert self._process is not None, "the engine has not been started"
        return self._process.pid

    async def __aenter__(self) -> EngineChild:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", self._module, "serve"),
            cwd=REPOSITORY,
            env={**os.environ, **variables(self._settings), **self._environment},
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=DEVNULL,
            preexec_fn=_die_with_parent,
        )
        try:
            async with asyncio.timeout(self._settings.start_deadline_seconds + STOP_SECONDS):
                await self._ready(self._process)
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _ready(self, process: Process) -> None:
        assert process.stdout is not None
        async for raw in process.stdout:
            line: dict[str, Any] = json.loads(raw)
            if line.get("ready"):
                self.start_seconds = line["seconds"]
                return
            if "failed" in line:
                raise StartFailed(line["failed"])
            self._on_stage(line.get("stage", ""))
        raise StartFailed(f"the engine ended while it started; see {self._settings.log_dir}")

    async def ended(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None, "the engine has not been started"
        return await self._process.wait()

    async def stop(self) -> int:
        """Its exit code."""
        assert self._process is not None, "the engine has not been started"
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await self._process.wait()
        except TimeoutError:
            self._process.kill()
            return await self._process.wait()


def variables(settings: EngineSettings) -> Mapping[str, str]:
    """``settings`` as the environment variables that give them back."""
    raw = settings.model_dump(mode="json", exclude=SECRETS, exclude_none=True)
    return {f"MARLAAS_{name.upper()}": _text(value) for name, value in raw.items()}


def _text(value: Any) -> str:
    """As ``EngineSettings`` reads it: a mapping is written as name=value, several with spaces between them."""
    return " ".join(f"{name}={item}" for name, item in value.items()) if isinstance(value, dict) else str(value)


def _die_with_parent() -> None:
    _libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)
