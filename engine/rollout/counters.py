"""A handful of numbers that one process writes and another reads: a small file mapped into both. No locks, no messages.

Each value is an aligned 8-byte slot written whole, so a reader sees every counter as it was at some step, never half of one. Behind them
lies a table of who holds how much of the cache; its rows may be of two neighbouring moments.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from itertools import chain
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
HOLDERS = 160  # rows of the table: more adapters than a sampler has places for
_LAYOUT = struct.Struct(f"={len(FIELDS)}q")
_HELD = struct.Struct(f"={2 * HOLDERS}q")
_BYTES = _LAYOUT.size + _HELD.size


class Counters:
    """``values`` is the writer's own list, in the order of ``FIELDS``; ``publish`` makes it visible to the reader."""

    def __init__(self, path: Path):
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self.values = dict.fromkeys(FIELDS, 0)

    @classmethod
    def create(cls, path: Path) -> Counters:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(descriptor, _BYTES)
        finally:
            os.close(descriptor)
        return cls(path)

    def publish(self) -> None:
        _LAYOUT.pack_into(self._map, 0, *self.values.values())

    def read(self) -> dict[str, int]:
        return dict(zip(FIELDS, _LAYOUT.unpack_from(self._map, 0), strict=True))

    def publish_held(self, held: Mapping[int, int]) -> None:
        """``held``: an adapter's number → tokens of its requests that lie in the cache. Beyond ``HOLDERS`` the smallest are left out."""
        most = sorted(held.items(), key=lambda row: -row[1])[:HOLDERS]
        _HELD.pack_into(self._map, _LAYOUT.size, *chain(*most), *[0] * (2 * (HOLDERS - len(most))))

    def read_held(self) -> dict[int, int]:
        flat = iter(_HELD.unpack_from(self._map, _LAYOUT.size))
        return {number: tokens for number, tokens in zip(flat, flat, strict=True) if tokens}

    def close(self) -> None:
        self._map.close()
