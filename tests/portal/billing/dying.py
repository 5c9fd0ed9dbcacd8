"""Processes that die at random: before or after one of the named places of the code, or before any of its lines."""

from __future__ import annotations

import linecache
import random
import sys
from collections import Counter
from collections.abc import Sequence
from types import FrameType, ModuleType
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


class LineKiller:
    """``deaths``: (module, line) and how often. Lives while its ``with`` holds; after a death it is to be entered anew.

    Not at a ``with`` itself: what closes it would not run, which a dead process's database does for it and this one's cannot.
    """

    def __init__(self, chance: random.Random, modules: Sequence[ModuleType], often: float):
        self.chance, self.often, self.deaths = chance, often, Counter[tuple[str, int]]()
        self._names = {module.__file__: module.__name__ for module in modules}

    def __enter__(self) -> None:
        sys.settrace(self._called)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._perhaps if frame.f_code.co_filename in self._names else None

    def _perhaps(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line" and self.chance.random() < self.often:
            path, line = frame.f_code.co_filename, frame.f_lineno
            if not linecache.getline(path, line).lstrip().startswith("with "):
                self.deaths[self._names[path], line] += 1
                raise Dies(f"{self._names[path]}:{line}")
        return self._perhaps
