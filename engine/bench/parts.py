"""The engine's parts one at a time, each in a process of its own on the cores that it has in the engine."""

from __future__ import annotations

import multiprocessing as mp
import os
import secrets
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from engine.runtime import process, reaper
from engine.settings import EngineSettings

Say = Callable[[str], None]
# (settings, order, say) → the answer; a function of a module, since it is found by name in the child.
Work = Callable[[EngineSettings, Any, Say], Any]

# How long a child that has answered may take to end.
END_SECONDS = 20.0
_one_start = threading.Lock()  # the child's tag is, for a moment, in our own environment


class PartFailed(RuntimeError):
    """The child's own account of why."""


def in_child(work: Work, settings: EngineSettings, order: Any, *, cores: tuple[int, ...], seconds: float, on_stage: Say) -> Any:
    """``work(settings, order, say)`` in a fresh process pinned to ``cores``; blocks. Raises ``PartFailed`` when it fails, or says nothing
    for ``seconds``. What it prints goes to ``engine-bench-<work>.log``. Nothing of it is left afterwards, also when this process is killed.
    """
    context = mp.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    tag = secrets.token_hex(8)
    watchdog = reaper.start(tag)
    child = context.Process(target=_child, args=(there, work, settings, order, cores), name=work.__name__)
    with _tagged(tag):
        child.start()
    there.close()
    try:
        answer = _answer(here, seconds, on_stage)
        child.join(END_SECONDS)
        return answer
    except EOFError:
        raise PartFailed(f"{work.__name__} ended without an answer; see {_log(settings, work)}") from None
    finally:
        here.close()
        reaper.sweep(tag)
        child.join()
        watchdog.communicate()


@contextmanager
def _tagged(tag: str) -> Iterator[None]:
    """Who is started meanwhile carries ``tag``; not so multiprocessing's own tracker, which outlives a child."""
    with _one_start:
        resource_tracker.ensure_running()
        wanted = {reaper.TAG_VARIABLE: tag, **reaper.KEEPS_ENVIRONMENT}
        before = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


def _answer(here: Connection, seconds: float, on_stage: Say) -> Any:
    while here.poll(seconds):
        kind, value = here.recv()
        if kind == "failed":
            raise PartFailed(value)
        if kind == "done":
            return value
        on_stage(value)
    raise PartFailed(f"nothing was heard of it for {seconds:g} s")


def _child(pipe: Connection, work: Work, settings: EngineSettings, order: Any, cores: tuple[int, ...]) -> None:
    os.environ.update(settings.device_profile().vllm_env)
    process.enter(_log(settings, work).stem.removeprefix("engine-"), settings, cores=cores, threads=max(1, len(cores)))
    try:
        answer = ("done", work(settings, order, lambda text: pipe.send(("stage", text))))
    except Exception:
        answer = ("failed", traceback.format_exc())
    pipe.send(answer)


def _log(settings: EngineSettings, work: Work) -> Path:
    return settings.log_dir / f"engine-bench-{work.__name__}.log"
