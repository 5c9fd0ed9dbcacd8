"""Frames as the inside speaks them: four bytes of little-endian length, then JSON. The host checks what it reads; this side does not.

Requests come on descriptor 3, replies go to 4. When the requests end, so does the process.
"""

from __future__ import annotations

import json
import os
import struct

REQUESTS, REPLIES = 3, 4
_LOST_THE_HOST = 72

_HEAD = struct.Struct("<I")


def receive() -> dict:
    (size,) = _HEAD.unpack(_exactly(_HEAD.size))
    return json.loads(_exactly(size))


def send(message: dict) -> None:
    send_bytes(json.dumps(message).encode())


def send_bytes(body: bytes) -> None:
    rest = memoryview(_HEAD.pack(len(body)) + body)
    try:
        while rest:
            rest = rest[os.write(REPLIES, rest) :]
    except OSError:
        os._exit(_LOST_THE_HOST)


def _exactly(size: int) -> bytes:
    parts = []
    while size:
        try:
            part = os.read(REQUESTS, min(size, 1 << 20))
        except OSError:
            os._exit(_LOST_THE_HOST)
        if not part:
            os._exit(0)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
