"""How far the bench is, on the terminal's standard error: bars where somebody watches, a line per run where it goes to a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from engine.bench.run import Run


class Screen:
    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic):
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._runs: TaskID | None = None

    @contextmanager
    def shown(self, runs: int) -> Iterator[Screen]:
        """``runs``: how many will be played."""
        with self._progress:
            self._runs = self._progress.add_task("all runs", total=runs)
            yield self

    def stage(self, text: str) -> None:
        """What goes on between the runs."""
        self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def run(self, name: str, steps: int) -> Iterator[Callable[[Run], None]]:
        """A run of ``steps`` steps; give what is yielded the run as it grows."""
        began, task = self._clock(), self._progress.add_task(name, total=steps)
        done = 0

        def show(run: Run) -> None:
            nonlocal done
            done = run.steps
            self._progress.update(task, completed=done)

        try:
            yield show
        finally:
            self._progress.remove_task(task)
            if self._runs is not None:
                self._progress.advance(self._runs)
            line = f"{name:<44}{done:>5} of {steps} steps in {self._clock() - began:6.1f} s"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
