"""What a check says. A finding names the fault, not the symptom, and the one thing that mends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warn", "bad"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """``code`` is stable, for tests and scripts. ``mend``: a command or a setting; "" where nothing needs mending."""

    check: str
    code: str
    level: Level
    says: str
    mend: str = ""


def ok(check: str, says: str) -> Finding:
    return Finding(check=check, code="ok", level="ok", says=says)


def warn(check: str, code: str, says: str, mend: str) -> Finding:
    return Finding(check=check, code=code, level="warn", says=says, mend=mend)


def bad(check: str, code: str, says: str, mend: str) -> Finding:
    return Finding(check=check, code=code, level="bad", says=says, mend=mend)
