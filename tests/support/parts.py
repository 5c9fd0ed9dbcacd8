"""The processes of a running engine, by what they call themselves."""

from __future__ import annotations

from pathlib import Path

from engine.runtime import process, run_file
from engine.settings import EngineSettings


def parts(settings: EngineSettings, title: str) -> list[int]:
    """Ids of the engine's processes whose title begins with ``title``. vLLM's core, spawned, may have failed to give itself one."""
    pids = run_file.processes(settings)
    titled = [pid for pid in pids if title_of(pid).startswith(title)]
    return titled or [pid for pid in pids if title.startswith("VLLM") and process.is_spawned(pid)]


def title_of(pid: int) -> str:
    """Its command line, words apart by blanks; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
