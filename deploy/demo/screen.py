"""The jobs, live: a table on a terminal, a line per job every so many seconds anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from deploy.demo.follow import Followed

BLOCKS = "▁▂▃▄▅▆▇█"
LINE_SECONDS = 10.0


class Screen:
    """``with Screen(…) as screen: screen.show()`` after each change."""

    def __init__(self, console: Console, views: Sequence[Followed], url: str, clock: Callable[[], float] = time.monotonic):
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
            facts = view.facts
            step = f"{facts.step}/{facts.steps}"
            bar = ProgressBar(total=facts.steps, completed=facts.step, width=16)
            curve = sparkline(facts.rewards, 24)
            table.add_row(facts.tenant, facts.task, step, bar, facts.reward_text, curve, _heldout(view), _phase(view), facts.left_text)
        return Group(table, Text(f"live at {self._url}", style="dim"))


def sparkline(values: Sequence[float], width: int) -> str:
    """Values in 0..1 as block characters, the last ``width`` of them."""
    top = len(BLOCKS) - 1
    return "".join(BLOCKS[round(min(max(value, 0.0), 1.0) * top)] for value in values[-width:])


def _line(view: Followed) -> str:
    facts = view.facts
    said = (f"{facts.tenant}: {facts.task}", f"step {facts.step}/{facts.steps}", f"reward {facts.reward_text}", facts.phase)
    return ", ".join((*said, f"ETA {facts.left_text}", *([view.reason] if view.reason else [])))


def _heldout(view: Followed) -> str:
    versions = sorted(view.facts.heldout)
    shown = versions if len(versions) < 2 else (versions[0], versions[-1])
    return " → ".join(f"{view.facts.heldout[version]:.2f}" for version in shown) or "–"


def _phase(view: Followed) -> Text:
    style = {"succeeded": "green", "failed": "red", "rollout": "cyan", "training": "magenta"}.get(view.facts.phase, "")
    return Text(view.facts.phase, style=style)
