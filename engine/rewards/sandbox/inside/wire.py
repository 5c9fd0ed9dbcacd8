"""Frames as the inside speaks them: four bytes of little-endian length, then JSON. The host checks what it reads; this side does not.

Requests come on descriptor 3, replies go to 4. When the requests end, so does the process. The host never sends a second request before
it has the reply to the first.
"""

from __future__ import annotations

import json
import os
import struct

REQUESTS, REPLIES = 3, 4
# Small enough that the buffer of each read is no mapping of its own.
_READ_BYTES = 32 * 1024
_LOST_THE_HOST = 72

# Without the search for white space and byte order marks that json.loads begins with.
_scan = json.JSONDecoder().scan_once
_HEAD = struct.Struct("<I")


def receive() -> dict:
    message = _some()
    while len(message) < _HEAD.size:
        message += _some()
    (size,) = _HEAD.unpack_from(message)
    if len(message) < _HEAD.size + size:
        parts = [message]
        missing = _HEAD.size + size - len(message)
        while missing > 0:
            parts.append(_some())
            missing -= len(parts[-1])
        message = b"".join(parts)
    return _scan(message[_HEAD.size :].decode("utf-8", "surrogatepass"), 0)[0]


def send(message: dict) -> None:
    send_bytes(json.dumps(message).encode())


def send_bytes(body: bytes) -> None:
    rest = memoryview(_HEAD.pack(len(body)) + body)
    try:
        while rest:
            rest = rest[os.write(REPLIES, rest) :]
    except OSError:
        os._exit(_LOST_THE_HOST)


def _some() -> bytes:
    try:
        part = os.read(REQUESTS, _READ_BYTES)
    except OSError:
        os._exit(_LOST_THE_HOST)
    if not part:
        os._exit(0)
    return part
