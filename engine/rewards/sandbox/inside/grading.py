"""A tenant's reward at work: load its source once, then grade one item after the other."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from . import guard, wire

_MAX_ABS = 1e9
_MAX_COMPONENTS = 32
_MAX_NAME_CHARACTERS = 64
# After one of these the process may be in any state (half an import, no memory): the host starts another.
_LAST_WORDS = frozenset({"timeout", "memory"})
_NUMPY_SCALARS = ("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")


class Grader:
    def __init__(self, keeper: guard.Guard):
        self._guard = keeper
        self._number = _number_reader()
        self._grade: Callable[[dict, dict], Any] | None = None

    def load(self, request: dict) -> None:
        """Answers {"loaded": true} or {"error": …}. Whatever goes wrong at import is an import error."""
        grade, error = self._guard.run(request["seconds"], _load, request["source"])
        if error:
            wire.send({"error": {**error, "kind": "import_error"}})
        else:
            self._grade = grade
            wire.send({"loaded": True})

    def grade(self, request: dict) -> None:
        """Answers {"ask", "reward"[, "components"]} or {"ask", "error"}; ``ask`` is the request's own."""
        ask, seconds = request["ask"], request["seconds"]
        value, error = self._guard.run(seconds, _answer, self._grade, request["sample"], request["item"], self._number)
        if error is None:
            wire.send_bytes(f'{{"ask":"{ask}",{value}}}'.encode())
            return
        wire.send({"ask": ask, "error": error})
        if error["kind"] in _LAST_WORDS:
            guard.leave(0)


def _load(source: str) -> Callable[[dict, dict], Any]:
    module = guard.module("reward", source, guard.REWARD_FILE)
    sys.modules["reward"] = module
    guard.execute(source, guard.REWARD_FILE, module.__dict__)
    grade = module.__dict__.get("grade")
    if not callable(grade):
        raise NameError("the source defines no function `grade(sample, item)`")
    return grade


def _answer(grade: Callable[[dict, dict], Any], sample: dict, item: dict, number: Callable[[Any], float]) -> str:
    """The reply's value as JSON text: ``"reward":x`` and perhaps ``,"components":{…}``."""
    value = grade(sample, item)
    if type(value) is float and -_MAX_ABS <= value <= _MAX_ABS:
        return f'"reward":{value!r}'
    if value is None:
        return '"reward":null'
    if type(value) is dict:
        return _parts(value, number)
    return f'"reward":{number(value)!r}'


def _parts(value: dict, number: Callable[[Any], float]) -> str:
    if not 1 <= len(value) <= _MAX_COMPONENTS:
        raise guard.BadValue(f"a dict of {len(value)} entries; 1 to {_MAX_COMPONENTS} can be kept")
    parts = {}
    for name, part in value.items():
        if type(name) is not str or not 1 <= len(name) <= _MAX_NAME_CHARACTERS:
            raise guard.BadValue(f"the keys of a dict must be texts of 1 to {_MAX_NAME_CHARACTERS} characters")
        parts[name] = number(part)
    reward = parts.pop("reward", None)
    total = sum(parts.values()) if reward is None else reward
    if not -_MAX_ABS <= total <= _MAX_ABS:
        raise guard.BadValue("the components add up to more than 1e9")
    return f'"reward":{total!r},"components":{json.dumps(parts)}'


def _number_reader() -> Callable[[Any], float]:
    """Reads a number of an exactly known type: a subclass may answer anything when asked for its value."""
    numpy = sys.modules.get("numpy")
    known = {float, int, bool, *(getattr(numpy, name) for name in _NUMPY_SCALARS if numpy)}

    def number(value: Any) -> float:
        if type(value) not in known:
            raise guard.BadValue(f"a reward must be a number, not {_kind(value)}")
        if not -_MAX_ABS <= value <= _MAX_ABS:
            raise guard.BadValue(_why_not(value))
        return float(value)

    return number


def _kind(value: Any) -> str:
    name = str(type(value).__name__)[:60]
    if name == "coroutine":
        return "a coroutine: write `def grade`, not `async def grade`"
    return f"{name} (float(...) makes one of a number-like value)" if hasattr(type(value), "__float__") else name


def _why_not(value: Any) -> str:
    if value != value:
        return "the reward is not a number (nan)"
    return f"the reward is out of range: {'more' if value > 0 else 'less'} than {'' if value > 0 else '-'}1e9"
