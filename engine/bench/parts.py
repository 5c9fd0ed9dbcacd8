"""The engine's parts one at a time, each in a process of its own on the cores that it has in the engine."""

from __future__ import annotations

import multiprocessing as mp
import os
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from engine.runtime import process
from engine.settings import EngineSettings

Say = Callable[[str], None]
# (settings, order, say) → the answer; a function of a module, since it is found by name in the child.
Work = Callable[[EngineSettings, Any, Say], Any]


# How long a child that has answered may take to end.
END_SECONDS = 20.0


class PartFailed(RuntimeError):
    """The child's own account of why."""


def in_child(work: Work, settings: EngineSettings, order: Any, *, cores: tuple[int, ...], seconds: float, on_stage: Say) -> Any:
    """``work(settings, order, say)`` in a fresh process pinned to ``cores``; blocks. Raises ``PartFailed`` when it fails or outlasts
    ``seconds``. What it prints goes to ``bench-<work>.log``.
    """
    context = mp.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(there, work, settings, order, cores), name=work.__name__)
    child.start()
    there.close()
    answered = False
    try:
        answer = _answer(here, seconds, on_stage)
        answered = True
        return answer
    except EOFError:
        raise PartFailed(f"{work.__name__} ended without an answer; see {_log(settings, work)}") from None
    finally:
        here.close()
        child.join(END_SECONDS if answered else 0.0)
        child.kill()
        child.join()


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
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.environ.update(settings.device_profile().vllm_env)
    process.enter(_log(settings, work).stem.removeprefix("engine-"), settings, cores=cores, threads=max(1, len(cores)))
    try:
        answer = ("done", work(settings, order, lambda text: pipe.send(("stage", text))))
    except Exception:
        answer = ("failed", traceback.format_exc())
    pipe.send(answer)


def _log(settings: EngineSettings, work: Work) -> Any:
    return settings.log_dir / f"engine-bench-{work.__name__}.log"


def _end_with_parent() -> None:
    wait([mp.parent_process().sentinel])
    os._exit(1)
