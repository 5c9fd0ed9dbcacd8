"""A job's own hard limit: ``{"micros": n}``, ``{"tokens": n}`` or both. The job pauses at a committed step before it goes beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from portal.billing.money import MOST

_LARGEST = {"micros": MOST, "tokens": 10**15}


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """``micros``: money in micro-units. None: no such limit."""

    micros: int | None = None
    tokens: int | None = None


def parse(raw: Any, problems: list[tuple[str, str]]) -> Budget:
    """``raw`` (JSON-like; None: no budget) as a ``Budget``; what is wrong is added to ``problems``."""
    if raw is None:
        return Budget()
    if not isinstance(raw, dict):
        problems.append(("budget", 'must be an object such as {"micros": 5000000} or {"tokens": 1000000}'))
        return Budget()
    problems += [(f"budget.{str(name)[:40]}", "is not known; choose among micros, tokens") for name in raw if name not in _LARGEST]
    found: dict[str, int | None] = {}
    for name, largest in _LARGEST.items():
        value = raw.get(name)
        if value is not None and (type(value) is not int or not 0 < value <= largest):
            problems.append((f"budget.{name}", f"must be a whole number above 0 and at most {largest}"))
            value = None
        found[name] = value
    return Budget(**found)
