"""Reading canonical dataset JSONL by row, and choosing the rows of a step.

One line per row: ``{"row": int, "messages": [{"role", "content"}, …], "item": {every original column}}``. A *position* counts
lines from 0 within one blob; ``row`` is the row's identity within the dataset version (train and eval share its numbering).
"""

from __future__ import annotations

import hashlib
import os
from array import array
from collections import OrderedDict
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from engine.blobs import BlobStore
from engine.ports import Row
from engine.spec import BlobRef


class BadRow(ValueError):
    """A line of a canonical file that is not a row; the message names the line."""


class _Line(msgspec.Struct, frozen=True):
    row: int
    messages: list[dict[str, str]]
    item: dict[str, Any]


_decoder = msgspec.json.Decoder(_Line)


class RowFile:
    """Random access to the rows of one file. Holds 8 bytes per row in memory, and reads only the rows asked for."""

    def __init__(self, path: Path):
        self._path = path
        self._offsets = _line_offsets(path)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def rows(self, positions: list[int]) -> list[Row]:
        """The rows at ``positions``, in that order. Raises ``IndexError`` and ``BadRow``."""
        with open(self._path, "rb") as file:
            return [self._read(file.fileno(), position) for position in positions]

    def _read(self, descriptor: int, position: int) -> Row:
        if not 0 <= position < len(self):
            raise IndexError(f"position {position} of {len(self)} rows")
        start, end = self._offsets[position], self._offsets[position + 1]
        try:
            line = _decoder.decode(os.pread(descriptor, end - start, start))
        except msgspec.MsgspecError as error:
            raise BadRow(f"line {position + 1}: {error}") from None
        return Row(row=line.row, messages=line.messages, item=line.item)


class Datasets:
    """The row files of many blobs; the ``keep`` most recently used keep their index in memory."""

    def __init__(self, blobs: BlobStore, *, keep: int = 256):
        self._blobs = blobs
        self._keep = keep
        self._files: OrderedDict[str, RowFile] = OrderedDict()

    def file(self, ref: BlobRef) -> RowFile:
        """The verified rows of ``ref``. Raises ``BlobMissing`` and ``BlobCorrupt``."""
        found = self._files.pop(ref.sha256, None) or RowFile(self._blobs.path(ref))
        self._files[ref.sha256] = found
        while len(self._files) > self._keep:
            self._files.popitem(last=False)
        return found

    def rows(self, ref: BlobRef, positions: list[int]) -> list[Row]:
        return self.file(ref).rows(positions)


def step_rows(n_rows: int, prompts_per_step: int, seed: int, version: int) -> list[int]:
    """Positions of the step that trains on ``version``: a pure function of its arguments, the same for every attempt.

    Each epoch is its own seeded permutation, and a step never reaches over an epoch's end, so no step holds a row twice; the up to
    ``prompts_per_step - 1`` rows left over come at other places of the next permutation.
    """
    first = version * prompts_per_step
    return draw_rows(n_rows, prompts_per_step, seed, first=first, count=prompts_per_step)[0]


def draw_rows(
    n_rows: int, prompts_per_step: int, seed: int, *, first: int, count: int, without: Collection[int] = ()
) -> tuple[list[int], int]:
    """``count`` positions, none of them in ``without``, from place ``first`` on in the endless order of prompts; and the place after them.

    The order is that of ``step_rows``. Fewer than ``count`` when the dataset has no others.
    """
    drawn: dict[int, None] = {}
    place = first
    for candidate in range(first, first + 2 * n_rows):  # by then every row was passed
        if len(drawn) == count:
            break
        position = position_at(n_rows, prompts_per_step, seed, candidate)
        if position not in without and position not in drawn:
            drawn[position], place = None, candidate + 1
    return list(drawn), place


def position_at(n_rows: int, prompts_per_step: int, seed: int, place: int) -> int:
    """The position at ``place`` of the endless order of prompts."""
    per_epoch = n_rows // prompts_per_step * prompts_per_step
    if per_epoch < 1:
        raise ValueError(f"{n_rows} rows cannot fill a step of {prompts_per_step} prompts")
    epoch, offset = divmod(place, per_epoch)
    return permuted(offset, n_rows, f"{seed}/{epoch}")


def eval_rows(n_rows: int, max_rows: int) -> list[int]:
    """Positions of an evaluation: the first ``max_rows``, since the eval split was already drawn at random."""
    return list(range(min(n_rows, max_rows)))


def permuted(index: int, size: int, key: str) -> int:
    """Where ``index`` goes in the permutation of 0 … ``size`` - 1 that ``key`` names; no table, constant time.

    A four-round Feistel network over the next even number of bits; results outside the range walk on until they fall inside
    (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains", 2002).
    """
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    while True:
        index = _feistel(index, half_bits, key)
        if index < size:
            return index


def _feistel(value: int, half_bits: int, key: str) -> int:
    mask = (1 << half_bits) - 1
    left, right = value >> half_bits, value & mask
    for round_number in range(4):
        digest = hashlib.blake2b(f"{key}/{round_number}/{right}".encode(), digest_size=8).digest()
        left, right = right, left ^ (int.from_bytes(digest, "little") & mask)
    return left << half_bits | right


def _line_offsets(path: Path) -> array[int]:
    """Byte offset of each line, and of the end of the file; a last line without newline counts."""
    offsets, position = array("Q", [0]), 0
    with open(path, "rb") as file:
        for line in file:
            position += len(line)
            offsets.append(position)
    return offsets
