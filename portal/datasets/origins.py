"""Rows that nobody uploads: our word problems, tasks of reasoning-gym, files of the model hub. Each ends as a file like an upload's.

What is foreign code or talks to the network runs in a child process without secrets, with limits and a deadline.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from portal.datasets import word_problems

GYM_SECONDS = 600.0
HUB_SECONDS = 1800.0
LIST_SECONDS = 60.0
POLL_SECONDS = 0.2
MAX_GYM_ROWS = 200_000
HUB_NAME = re.compile(r"\A[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9][\w.-]{0,95})?\Z")
_HERE = Path(__file__).parent
_WORDS = ("name", "revision", "file")

Beat = Callable[[], None]


class OriginFailed(RuntimeError):
    """The rows cannot be had; the text says why and what to do."""


def fetch(origin: dict[str, Any], path: Path, *, limit_bytes: int, beat: Beat, hub_child: Path = _HERE / "hub_child.py") -> str:
    """Write the rows to ``path``, wholly or not at all; the name of the file they are in. Raises ``OriginFailed``."""
    staged = path.with_name(f"{path.name}.staging")
    try:
        if origin["kind"] == "words":
            name = _words(origin, staged)
        elif origin["kind"] == "gym":
            name = _gym(origin, staged, limit_bytes, beat)
        else:
            name = _hub(origin, staged, limit_bytes, beat, hub_child)
        staged.replace(path)
        return name
    finally:
        staged.unlink(missing_ok=True)


def gym_is_here() -> bool:
    """Whether the extra is installed."""
    return importlib.util.find_spec("reasoning_gym") is not None


def gym_tasks() -> list[str]:
    """Names of the tasks; empty without the extra. Asked once, of a child: the library takes long to load and much memory."""
    global _tasks
    if _tasks is None:
        _tasks = _list_tasks() if gym_is_here() else []
    return _tasks


_tasks: list[str] | None = None


def _list_tasks() -> list[str]:
    command = [sys.executable, str(_HERE / "gym_child.py"), "--list"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=LIST_SECONDS, env=_environment(), check=True)
        return json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError):
        return []


def _words(origin: dict[str, Any], path: Path) -> str:
    level, rows, seed = origin["level"], origin["rows"], origin["seed"]
    try:
        with path.open("w") as file:
            for row in word_problems.rows(rows, seed=seed, level=level):
                file.write(json.dumps(row) + "\n")
    except ValueError as error:
        raise OriginFailed(str(error)) from error
    return f"word-problems-level-{level}-seed-{seed}.jsonl"


def _gym(origin: dict[str, Any], path: Path, limit_bytes: int, beat: Beat) -> str:
    if not gym_is_here():
        raise OriginFailed('reasoning-gym is not installed here; ask the operator for the extra "gym"')
    words = [origin["task"], str(origin["rows"]), str(origin["seed"]), str(origin["level"])]
    with path.open("wb") as file:
        _run([sys.executable, str(_HERE / "gym_child.py"), *words], file, GYM_SECONDS, limit_bytes, beat, what="the generator")
    return f"{origin['task']}-seed-{origin['seed']}.jsonl"


def _hub(origin: dict[str, Any], path: Path, limit_bytes: int, beat: Beat, child: Path) -> str:
    asked = json.dumps({**{word: origin.get(word, "") for word in _WORDS}, "limit_bytes": limit_bytes})
    with tempfile.TemporaryDirectory(prefix="hub-") as scratch, tempfile.TemporaryFile() as told:
        command = [sys.executable, str(child), asked, str(path)]
        _run(command, told, HUB_SECONDS, limit_bytes, beat, what="the hub", scratch=scratch, watched=path)
        told.seek(0)
        return json.loads(told.read())["filename"]


def _run(
    command: list[str],
    out: BinaryIO,
    seconds: float,
    limit_bytes: int,
    beat: Beat,
    *,
    what: str,
    scratch: str = "",
    watched: Path | None = None,
) -> None:
    """The child's standard output goes to ``out``; exit code 3 and a sentence on standard error is its way to refuse."""
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=_environment(scratch), start_new_session=True
        )
        try:
            deadline = time.monotonic() + seconds
            while (code := _wait(child)) is None:
                beat()
                size = watched.stat().st_size if watched is not None and watched.exists() else os.fstat(out.fileno()).st_size
                if size > limit_bytes:
                    raise OriginFailed(f"more than {limit_bytes:,} bytes came from {what}; ask for less")
                if time.monotonic() > deadline:
                    raise OriginFailed(f"{what} did not end within {seconds:.0f} seconds; ask for less, or try later")
        finally:
            child.kill()
            child.wait()
        errors.seek(0)
        told = errors.read(20_000).decode(errors="replace").strip()
    if code == 3:
        raise OriginFailed(told[-400:])
    if code:
        last = told.splitlines()[-1][:300] if told else f"exit code {code}"
        raise OriginFailed(f"{what} failed: {last}")


def _wait(child: subprocess.Popen) -> int | None:
    try:
        return child.wait(POLL_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _environment(scratch: str = "") -> dict[str, str]:
    """No secret of ours goes along. A proxy and a mirror of the hub are the operator's to set."""
    passed = {name: value for name, value in os.environ.items() if name.lower() in ("http_proxy", "https_proxy", "no_proxy", "hf_endpoint")}
    quiet = {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}
    return {
        "PATH": os.defpath,
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": "1",
        "HOME": scratch or "/nonexistent",
        "HF_HOME": scratch,
        **quiet,
        **passed,
    }
