"""What a person sees while the parts start: a live table on a terminal, one line per change anywhere else."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from deploy.supervisor.runner import Runner, State

STYLES = {
    State.READY: "green",
    State.DONE: "green",
    State.FAILED: "bold red",
    State.RESTARTING: "yellow",
    State.STOPPING: "dim",
    State.STOPPED: "dim",
    State.WAITING: "dim",
}


class Display(Protocol):
    def start(self, runners: Sequence[Runner]) -> None: ...
    def changed(self, runner: Runner) -> None: ...
    def started(self, text: str) -> None: ...
    def stopping(self) -> None: ...
    def stop(self) -> None: ...


class PlainDisplay:
    """One line per change of state: for logs, pipes and CI."""

    def __init__(self, console: Console, logs_at: Path):
        self.console = console
        self._logs_at = logs_at
        self._started_at = time.monotonic()
        self._shown: dict[str, tuple[State, str]] = {}

    def start(self, runners: Sequence[Runner]) -> None:
        self._started_at = time.monotonic()
        self._print(f"starting {', '.join(runner.service.name for runner in runners)}; logs in {self._logs_at}")

    def changed(self, runner: Runner) -> None:
        now = (runner.state, runner.note)
        if runner.state != State.WAITING and self._shown.get(runner.service.name) != now:
            self._shown[runner.service.name] = now
            self._print(f"{runner.service.name}: {runner.state}{f' ({runner.note})' if runner.note else ''}")

    def started(self, text: str) -> None:
        self.console.print(text, highlight=False)

    def stopping(self) -> None:
        self._print("stopping")

    def stop(self) -> None:
        self._print("stopped; no process is left")

    def _print(self, text: str) -> None:
        self.console.print(f"[{time.monotonic() - self._started_at:6.1f} s] {text}", highlight=False, markup=False, soft_wrap=True)


class LiveDisplay:
    """A table that lives until everything is up; afterwards only what goes wrong is printed."""

    def __init__(self, console: Console, logs_at: Path):
        self.console = console
        self._logs_at = logs_at
        self._runners: Sequence[Runner] = ()
        self._live: Live | None = None

    def start(self, runners: Sequence[Runner]) -> None:
        self._runners = runners
        self._live = Live(console=self.console, refresh_per_second=8, get_renderable=self._table, transient=False)
        self._live.start()

    def changed(self, runner: Runner) -> None:
        if self._live is None and runner.state in (State.RESTARTING, State.FAILED):
            self.console.print(Text(f"{runner.service.title}: {runner.note}; log: {runner.service.log}", style=STYLES[runner.state]))

    def started(self, text: str) -> None:
        self._close()
        self.console.print(text, highlight=False)

    def stopping(self) -> None:
        self._close()
        self.console.print("Stopping …", style="dim")

    def stop(self) -> None:
        self._close()
        self.console.print("Stopped; no process is left.", style="dim")

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _table(self) -> Table:
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), caption=f"logs in {self._logs_at}", caption_justify="left")
        for runner in self._runners:
            table.add_row(_mark(runner), runner.service.title, _state(runner), Text(runner.note, style="dim"))
        return table


def _mark(runner: Runner) -> Text | Spinner:
    if runner.state in (State.STARTING, State.RESTARTING):
        return Spinner("dots")
    return Text({State.READY: "●", State.DONE: "●", State.FAILED: "✗"}.get(runner.state, "○"), style=STYLES[runner.state])


def _state(runner: Runner) -> Text:
    text = str(runner.state)
    if runner.state == State.STARTING:
        text += f" {time.monotonic() - runner.since:.0f} s"
    return Text(text, style=STYLES.get(runner.state, ""))


def console_for(out: TextIO) -> Console:
    """Without a terminal there is no width to fit, so tables are not squeezed into 80 columns."""
    return Console(file=out) if out.isatty() else Console(file=out, width=160)


def display_for(console: Console, logs_at: Path) -> Display:
    return LiveDisplay(console, logs_at) if console.is_terminal else PlainDisplay(console, logs_at)
