"""A process that dies at random before or after one of the named places of the code."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest


class Dies(BaseException):
    """What no handler catches."""


class Killer:
    """``deaths``: where, and how often. Lives as long as ``monkeypatch`` holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, chance: random.Random, places: Sequence[tuple[Any, str]], often: float = 0.02):
        self.chance, self.often, self.deaths = chance, often, Counter()
        for owner, name in places:
            monkeypatch.setattr(owner, name, self._wrapped(getattr(owner, name), name))

    def _wrapped(self, call: Any, name: str) -> Any:
        def wrapped(*args: Any, **options: Any) -> Any:
            self._perhaps(f"before {name}")
            answer = call(*args, **options)
            self._perhaps(f"after {name}")
            return answer

        return wrapped

    def _perhaps(self, where: str) -> None:
        if self.chance.random() < self.often:
            self.deaths[where] += 1
            raise Dies(where)
