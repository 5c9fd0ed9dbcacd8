"""Dying at a named point: the hook that production leaves empty."""

from __future__ import annotations

from collections.abc import Callable


class Died(BaseException):
    """The process is gone. Not an ``Exception``, so that nothing which handles a job's failure can swallow it."""


def dies_at(point: str, *, nth: int = 1) -> Callable[[str], None]:
    """A crash hook that raises ``Died`` the ``nth`` time that ``point`` is reached, and at everything after it: the dead do nothing."""
    left = nth

    def crash_at(name: str) -> None:
        nonlocal left
        left -= name == point
        if left <= 0:
            raise Died(name)

    return crash_at


def points_of(action: Callable[[Callable[[str], None]], object]) -> list[str]:
    """Every crash point that ``action`` passes, in order."""
    passed: list[str] = []
    action(passed.append)
    return passed
