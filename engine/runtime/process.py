"""What every actor does with its own process: log to a file of its own, stay on its cores, end when a child it cannot live without ends."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine import device, log_files, logs
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)

# The niceness of what feeds a calculating process of its own and hands on what comes out: before that process (device.CALCULATES), whose
# cores it shares, and behind the pages of the site.
HANDS_ON = 5


def enter(role: str, settings: EngineSettings, *, cores: tuple[int, ...] = (), threads: int = 1, niceness: int = 0) -> None:
    """First thing in an actor: before torch or vllm is imported. ``niceness``: how far it, and its children, let others go first."""
    device.let_others_go_first(niceness)
    device.limit_threads(os.environ, threads)
    device.pin(cores)
    log_to(settings.log_dir / f"engine-{role}.log", as_json=settings.logs_are_json)
    logger.info("%s: process %d starts on cores %s", role, os.getpid(), ",".join(map(str, cores)) or "any")


def settle() -> None:
    """Once an actor has loaded all it needs: what stands now stays, and no collection of garbage looks through it again.

    After torch and vllm are imported a full one holds up everything in the process for a tenth of a second.
    """
    gc.collect()
    gc.freeze()


def log_to(path: Path, *, as_json: bool = False) -> None:
    """Stdout, stderr and ``logging`` of this process, and of the children it will start, go to ``path``, which stays bounded."""
    file = _opened(path)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(file, 1)
    os.dup2(file, 2)
    _log_with(log_files.BoundedHandler(path, file), as_json=as_json)


def log_beside_stdout(path: Path, *, as_json: bool = False) -> None:
    """``logging`` goes to ``path`` and stdout stays the protocol: the launcher's way."""
    _log_with(log_files.BoundedHandler(path, _opened(path)), as_json=as_json)


def _opened(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _log_with(handler: logging.Handler, *, as_json: bool) -> None:
    handler.setFormatter(logs.formatter(as_json=as_json))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def load(name: str) -> Any:
    """The object that ``"module:attribute"`` names."""
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


def children(*, named: str = "") -> list[int]:
    """Process ids of this process's direct children whose title begins with ``named``, or that multiprocessing has spawned.

    The latter because a spawned process does not always succeed in giving itself a title.
    """
    found = []
    for entry in Path("/proc").iterdir():
        try:
            # pid (title) state parent …, and a title may hold anything, even brackets
            title, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
        except (OSError, UnicodeDecodeError):  # no process, or one that ended meanwhile
            continue
        if int(rest.split()[1]) == os.getpid() and (title.startswith(named) or is_spawned(int(entry.name))):
            found.append(int(entry.name))
    return found


def is_spawned(pid: int) -> bool:
    """Whether ``pid`` runs what multiprocessing's ``spawn`` runs, under no other title."""
    try:
        return b"multiprocessing.spawn" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def watch(pids: list[int], on_exit: Callable[[int], None]) -> None:
    """Call ``on_exit(pid)`` from the running loop the moment one of ``pids`` ends. No polling: the kernel wakes us."""
    loop = asyncio.get_running_loop()

    def fired(fd: int, pid: int) -> None:
        loop.remove_reader(fd)
        os.close(fd)
        on_exit(pid)

    for pid in pids:
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            loop.call_soon(on_exit, pid)
            continue
        loop.add_reader(fd, fired, fd, pid)


def exit_now(reason: str) -> None:
    """End this process so that Ray starts it anew; nothing of its state is worth saving."""
    logger.error("%s; this process ends and Ray restarts it", reason)
    logging.shutdown()
    os._exit(1)
