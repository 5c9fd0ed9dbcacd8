"""A handful of numbers that one process writes and another reads: a small file mapped into both. No locks, no messages.

Each value is an aligned 8-byte slot written whole, so a reader sees every counter as it was at some step, never half of one.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

FIELDS = (
    "steps",
    "decode_steps",
    "decode_steps_with_2_adapters",
    "prefill_tokens",
    "decode_tokens",
    "cached_tokens",
    "preempted",
    "running",
    "waiting",
    "kv_used_ppm",
)
_LAYOUT = struct.Struct(f"={len(FIELDS)}q")


class Counters:
    """``values`` is the writer's own list, in the order of ``FIELDS``; ``publish`` makes it visible to the reader."""

    def __init__(self, path: Path):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.values = dict.fromkeys(FIELDS, 0)

    @classmethod
    def create(cls, path: Path) -> Counters:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, _LAYOUT.size)
        finally:
            os.close(descriptor)
        return cls(path)

    def publish(self) -> None:
        _LAYOUT.pack_into(self._map, 0, *self.values.values())

    def read(self) -> dict[str, int]:
        return dict(zip(FIELDS, _LAYOUT.unpack_from(self._map, 0), strict=True))

    def close(self) -> None:
        self._map.close()
