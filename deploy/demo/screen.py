"""The jobs, live: a table on a terminal, a line per job every so many seconds anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.demo.follow import JobView

BLOCKS = "▁▂▃▄▅▆▇█"
LINE_SECONDS = 10.0


class Screen:
    """``with Screen(…) as screen: screen.show()`` after each change."""

    def __init__(self, console: Console, views: Sequence[JobView], url: str, clock: Callable[[], float] = time.monotonic):
        self._console = console
        self._views = views
        self._url = url
        self._clock = clock
        self._said_at = -LINE_SECONDS
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._table) if console.is_terminal else None

    def __enter__(self) -> Screen:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def show(self) -> None:
        finished = all(view.done for view in self._views)
        if self._live is None and (finished or self._clock() - self._said_at >= LINE_SECONDS):
            self._said_at = self._clock()
            for view in self._views:
                self._console.print(_line(view), highlight=False, markup=False, soft_wrap=True)

    def _table(self) -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for heading in ("tenant", "task", "step", "", "reward", "", "held-out", "phase", "ETA"):
            table.add_column(heading, no_wrap=True)
        for view in self._views:
            step = f"{len(view.steps)}/{view.wanted_steps}"
            bar = ProgressBar(total=view.wanted_steps, completed=len(view.steps), width=16)
            table.add_row(
                view.order.tenant,
                view.order.task,
                step,
                bar,
                _last(view),
                sparkline(view.rewards, 24),
                _heldout(view),
                _phase(view),
                _eta(view),
            )
        return Group(table, Text(f"live at {self._url}", style="dim"))


def sparkline(values: Sequence[float], width: int) -> str:
    """Values in 0..1 as block characters, the last ``width`` of them."""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(min(max(value, 0.0), 1.0) * top)] for value in values[-width:])


def _line(view: JobView) -> str:
    facts = (f"{view.order.tenant}: {view.order.task}", f"step {len(view.steps)}/{view.wanted_steps}", f"reward {_last(view)}", view.phase)
    return ", ".join((*facts, f"ETA {_eta(view)}", *([view.reason] if view.reason else [])))


def _last(view: JobView) -> str:
    return f"{view.rewards[-1]:.2f}" if view.rewards else "–"


def _heldout(view: JobView) -> str:
    return " → ".join(f"{view.heldout[version]:.2f}" for version in sorted(view.heldout)[:: max(1, len(view.heldout) - 1)]) or "–"


def _phase(view: JobView) -> Text:
    style = {"ended": "green" if view.state == "succeeded" else "red", "rollout": "cyan", "training": "magenta"}.get(view.phase, "")
    return Text(view.state if view.ending else view.phase, style=style)


def _eta(view: JobView) -> str:
    if view.ending:
        return "done"
    seconds = view.eta_seconds()
    return "–" if seconds is None else f"{seconds:.0f} s"
