"""Plain values as JSON, and back, between a model's code, its tests and the host.

Every container is tagged: ["list", […]], ["tuple", […]], ["set", […]], ["dict", [[key, value], …]], ["float", "0x1.8p+1"], ["int", "0x…"];
small whole numbers, texts, booleans and None stand for themselves. Nothing but these types ever comes out of ``unpack``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

_SEQUENCES = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}
_MAX_DEPTH = 50


def pack(value: Any, depth: int = 0) -> Any:
    """Tagged JSON of plain values; raises ``TypeError`` for anything else: objects do not cross."""
    if depth > _MAX_DEPTH:
        raise TypeError(f"a value nested deeper than {_MAX_DEPTH} cannot be handed over")
    kind = type(value)
    if value is None or kind in (bool, str):
        return value
    if kind is int:
        return value if abs(value) < 2**53 else ["int", hex(value)]
    if kind is float:
        return ["float", value.hex()]
    if kind is complex:
        return ["complex", value.real.hex(), value.imag.hex()]
    if kind in (bytes, bytearray):
        return ["bytes", bytes(value).hex()]
    if kind is dict:
        return ["dict", [[pack(key, depth + 1), pack(item, depth + 1)] for key, item in value.items()]]
    if kind.__name__ in _SEQUENCES and kind is _SEQUENCES[kind.__name__]:
        return [kind.__name__, [pack(item, depth + 1) for item in value]]
    return _pack_known(value, kind, depth)


def _pack_known(value: Any, kind: type, depth: int) -> Any:
    """What numpy and collections make of plain values counts as plain."""
    numpy = sys.modules.get("numpy")
    if numpy and isinstance(value, (numpy.generic, numpy.ndarray)) and kind.__module__ == "numpy":
        return pack(value.tolist(), depth + 1)
    for plain in (dict, list, tuple, set, str, int, float):
        if issubclass(kind, plain):
            return pack(plain(value), depth + 1)
    raise TypeError(f"a value of type {kind.__name__[:60]} cannot be handed over")


def unpack(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    kind, *parts = value
    return _UNPACK[kind](*parts)


_UNPACK: dict[str, Callable[..., Any]] = {
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "complex": lambda real, imaginary: complex(float.fromhex(real), float.fromhex(imaginary)),
    "bytes": bytes.fromhex,
    "dict": lambda pairs: {unpack(key): unpack(item) for key, item in pairs},
    "list": lambda items: [unpack(item) for item in items],
    "tuple": lambda items: tuple(unpack(item) for item in items),
    "set": lambda items: {unpack(item) for item in items},
    "frozenset": lambda items: frozenset(unpack(item) for item in items),
}
