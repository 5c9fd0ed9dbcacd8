"""Histories of real runs: tiny-math on one machine, 16 prompts × 8 completions, rank 16; recorded from the engine's own events.

"add", "add again", "subtract", "max": healthy, at learning rates of 5e-4 and 1e-3. "control": healthy, at learning rate 0. "solved":
learned to the end. "rate too high": 0.1. "reward never given": an answer that nobody says. "memorised too fast": 16 prompts at 1e-2.
"paid for length": a reward that grows with the completion. Figures that were the same in all steps are stored once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from engine.doctor.figures import Eval, Step, step_of

STORED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "histories.json").read_text())
HEALTHY = ("add", "add again", "subtract", "max", "control")


def steps(name: str) -> list[Step]:
    stored = STORED[name]
    count = len(stored["step"]["entropy"])
    return [step_of({"step": n + 1, "rollout": _at(stored["rollout"], n), **_at(stored["step"], n)}) for n in range(count)]


def moments(name: str) -> Iterator[tuple[list[Step], list[Eval]]]:
    """What was known after each step."""
    every = steps(name)
    for count in range(1, len(every) + 1):
        yield every[:count], [Eval(version=v, rows=rows, reward=r) for told, v, rows, r in STORED[name]["evals"] if told <= count]


def _at(columns: dict[str, Any], number: int) -> dict[str, Any]:
    return {name: values[number] if isinstance(values, list) else values for name, values in columns.items()}
