"""A dataset's rows as they came: one object of its columns a line, which can be uploaded again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO

import msgspec

from portal.datasets.models import Dataset
from portal.datasets.preview import store_of

_LINES_AT_ONCE = 256


class _Line(msgspec.Struct):
    """What a stored line has besides, its number and its turns, is ours."""

    item: msgspec.Raw


def lines(dataset: Dataset) -> Iterator[bytes]:
    """JSON Lines, some at a time; the training rows first, then those that are held out. Raises ``BlobMissing``."""
    files = [store_of().open(ref) for split in ("train", "eval") if (ref := dataset.blob(split))]
    return _rows(files)


def _rows(files: Sequence[BinaryIO]) -> Iterator[bytes]:
    decode, several = msgspec.json.Decoder(_Line).decode, []
    for file in files:
        with file:
            for line in file:
                several.append(bytes(decode(line).item))
                if len(several) == _LINES_AT_ONCE:
                    yield b"\n".join(several) + b"\n"
                    several.clear()
    if several:
        yield b"\n".join(several) + b"\n"
