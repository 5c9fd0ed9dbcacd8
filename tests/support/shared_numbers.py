"""Whole numbers in a file that several processes map: what one writes the others read at once, and it outlives whoever is killed."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Sequence
from pathlib import Path

_NUMBER = struct.Struct("<q")


class SharedNumbers:
    """``names``: the same in every process. All are 0 in a file that was not there."""

    def __init__(self, path: Path, names: Sequence[str]):
        self._places = {name: place * _NUMBER.size for place, name in enumerate(names)}
        size = len(names) * _NUMBER.size
        path.touch()
        with path.open("r+b") as file:
            file.truncate(size)
            self._map = mmap.mmap(file.fileno(), size)

    def __getitem__(self, name: str) -> int:
        return int(_NUMBER.unpack_from(self._map, self._places[name])[0])

    def __setitem__(self, name: str, value: int) -> None:
        _NUMBER.pack_into(self._map, self._places[name], value)
