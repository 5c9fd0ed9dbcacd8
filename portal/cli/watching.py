"""What one sees of a job while it runs: folded from its events, drawn with its reward curve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from portal.cli.curve import curve

_TONES = {"succeeded": "green", "failed": "red", "cancelled": "yellow", "paused": "yellow"}
CURVE_HEIGHT = 8


@dataclass(kw_only=True)
class Watched:
    """``take`` each event in order."""

    name: str
    steps: int
    state: str = "submitted"
    version: int = 0
    note: str = ""
    rewards: list[float] = field(default_factory=list)
    heldout: dict[int, float] = field(default_factory=dict)

    def take(self, event: dict[str, Any]) -> None:
        kind, data = event["kind"], event["data"]
        if kind == "step":
            self.version = data.get("version", self.version)
            self.state = "running"
            reward = data.get("rollout", {}).get("reward_mean")
            if reward is not None:
                self.rewards.append(reward)
        elif kind == "eval" and data.get("reward_mean") is not None:
            self.heldout[data.get("version", 0)] = data["reward_mean"]
        elif kind in ("paused", "resumed", "admitted"):
            self.state = {"paused": "paused"}.get(kind, "running")
        elif kind == "ended":
            self.state = data.get("state", "ended")
        if kind in ("waiting", "warning", "paused", "ended"):
            self.note = data.get("reason") or data.get("message") or ""

    def draw(self, width: int) -> RenderableType:
        facts = Table.grid(padding=(0, 2))
        facts.add_row(
            Text(self.state, style=_TONES.get(self.state, "cyan")), f"step {self.version} of {self.steps}", self._reward(), self._held()
        )
        across = max(20, min(width - 12, 100))
        lines = curve(self.rewards, width=across, height=CURVE_HEIGHT)
        top, bottom = max([1.0, *self.rewards]), min([0.0, *self.rewards])
        axis = [f"{top:5.2f} ", *["      "] * (CURVE_HEIGHT - 2), f"{bottom:5.2f} "]
        chart = Text("\n".join(label + line for label, line in zip(axis, lines, strict=True)), style="cyan")
        bar = ProgressBar(total=max(1, self.steps), completed=self.version, width=across + 6)
        return Panel(Group(facts, Text(), chart, bar, Text(self.note, style="dim")), title=Text(self.name), title_align="left")

    def _reward(self) -> str:
        return f"reward {self.rewards[-1]:.3f}" if self.rewards else "no step yet"

    def _held(self) -> str:
        if not self.heldout:
            return ""
        first, last = self.heldout[min(self.heldout)], self.heldout[max(self.heldout)]
        return f"held-out {first:.3f} → {last:.3f}"
