"""Frames as the host reads and writes them: four bytes of little-endian length, then JSON.

What is read may have been written by an enemy.
"""

from __future__ import annotations

import json
import struct
from typing import Any

HEAD = struct.Struct("<I")


class Forged(Exception):
    """What no honest worker writes. ``reply``: the message that gave it away, where it was one."""

    reply: dict[str, Any] | None = None


def encode(message: Any) -> bytes:
    return encode_text(json.dumps(message))


def encode_text(text: str) -> bytes:
    """For a message that is JSON already."""
    body = text.encode()
    return HEAD.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """A JSON object without NaN or infinity in it; raises ``Forged`` for everything else."""
    try:
        text = body.decode()
        message, end = _scan(text, 0)
    except (ValueError, RecursionError, StopIteration) as error:
        raise Forged("not JSON") from error
    if end != len(text):
        raise Forged("more than one value")
    if type(message) is not dict:
        raise Forged("not an object")
    return message


def _refuse(constant: str) -> float:
    raise ValueError(constant)


# The decoder's own scanner: no white space around the value, and half the time.
_scan = json.JSONDecoder(parse_constant=_refuse).scan_once
