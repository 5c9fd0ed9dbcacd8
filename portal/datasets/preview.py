"""Rows of a stored dataset as a page shows them: from any row on, or those that contain a text, without reading the whole.

The rows of a file are numbered upwards, so a row is found by halving; a search reads on from there for as long as a person waits.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from django.conf import settings

from engine.blobs import BlobStore
from portal.datasets.models import Dataset

MAX_COLUMNS = 8
MAX_CHARACTERS = 2000
PAGE_ROWS = 25
MAX_NEEDLE = 200
SEARCH_SECONDS = 1.5
_PROMPTS = ("prompt", "messages")
_CHUNK_BYTES = 1 << 16
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviewRow:
    """``turns``: (role, text) of the prompt; ``values``: (column, text) of the others."""

    row: int
    turns: list[tuple[str, str]]
    values: list[tuple[str, str]]

    @property
    def plain(self) -> bool:
        """One question of the user: its role goes without saying."""
        return len(self.turns) == 1 and self.turns[0][0] == "user"


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """``rows``: cut for looking at, or as they are stored. ``before``: the row to begin with for the page before, None at the start;
    ``next_row``: the row to go on with, None at the end; ``unfinished``: a search that has read up to ``next_row`` only."""

    rows: list[Any]
    before: int | None
    next_row: int | None
    unfinished: bool = False


def page(dataset: Dataset, split: str, *, start: int = 0, needle: str = "", limit: int = PAGE_ROWS) -> Page:
    """As ``raw_page``, the rows cut for looking at."""
    found = raw_page(dataset, split, start=start, needle=needle, limit=limit)
    return replace(found, rows=[shown(line["row"], line["messages"], line["item"]) for line in found.rows])


def raw_page(dataset: Dataset, split: str, *, start: int = 0, needle: str = "", limit: int = PAGE_ROWS) -> Page:
    """``limit`` rows from number ``start`` on; with ``needle`` those that contain it, whatever the case."""
    blob = dataset.blob(split)
    if blob is None:
        return Page(rows=[], before=None, next_row=None)
    with store_of().open(blob) as file:
        offset = offset_of(file, blob.bytes, start)
        file.seek(offset)
        found, next_row, unfinished = _collect(file, needle.casefold()[:MAX_NEEDLE], limit, time.monotonic)
        before = None if needle or offset == 0 else _row_before(file, offset, limit)
    return Page(rows=found, before=before, next_row=next_row, unfinished=unfinished)


def first_item(dataset: Dataset) -> dict[str, Any]:
    """The columns of the first row, for a reward's example."""
    with store_of().open(dataset.ref().train) as file:
        return json.loads(next(iter(file)))["item"]


def store_of() -> BlobStore:
    """One for the process: it verifies each blob once, not on every view of a page."""
    return _store(settings.BLOBS_DIR)


@cache
def _store(root: Path) -> BlobStore:
    return BlobStore(root)


def offset_of(file: BinaryIO, size: int, row: int) -> int:
    """Where the first line of number ``row`` or above begins; ``size`` if there is none. Halves the file: the numbers only grow."""
    low, high = 0, size  # all lines that begin before low are below row; those from high on are not
    while low < high:
        middle = (low + high) // 2
        file.seek(middle)
        if middle:
            file.seek(middle - 1)
            file.readline()  # the rest of the line before, or just its end
        begin = file.tell()
        line = file.readline() if begin < high else b""
        if not line:
            high = middle
        elif _decode(line)["row"] < row:
            low = begin + len(line)
        else:
            high = middle if begin > middle else begin
    return low


def _collect(file: BinaryIO, needle: str, limit: int, clock: Callable[[], float]) -> tuple[list[dict[str, Any]], int | None, bool]:
    found: list[dict[str, Any]] = []
    deadline = clock() + SEARCH_SECONDS
    for line in file:
        if needle and b"\\" not in line and needle not in line.decode().casefold():  # an escape may hide the text
            if clock() > deadline:
                return found, _decode(line)["row"] + 1, True
            continue
        row = _decode(line)
        if len(found) == limit:
            return found, row["row"], False
        if not needle or any(needle in text.casefold() for text in _texts(row)):
            found.append(row)
        if needle and clock() > deadline:
            return found, row["row"] + 1, True
    return found, None, False


def _texts(value: Any) -> Iterator[str]:
    """Every text that a person sees of a row: not the names of roles."""
    for message in value["messages"]:
        yield message["content"]
    for name, inner in value["item"].items():
        if name not in _PROMPTS:
            yield inner if isinstance(inner, str) else json.dumps(inner, ensure_ascii=False)


def _row_before(file: BinaryIO, offset: int, limit: int) -> int:
    """The number of the row ``limit`` lines above ``offset``."""
    ends, tail, position = 0, b"", offset
    while position and ends <= limit:
        step = min(_CHUNK_BYTES, position)
        position -= step
        file.seek(position)
        tail = file.read(step) + tail
        ends = tail.count(b"\n")
    lines = tail.splitlines()
    if position:
        lines = lines[1:]
    return _decode(lines[-limit:][0])["row"] if lines else 0


def shown(number: int, messages: list[dict[str, str]], item: dict[str, Any]) -> PreviewRow:
    """A row as the page shows it."""
    columns = [name for name in item if name not in _PROMPTS][:MAX_COLUMNS]
    turns = [(turn["role"], _text(turn["content"])) for turn in messages]
    return PreviewRow(row=number, turns=turns, values=[(name, _text(item[name])) for name in columns])


def _text(value: Any) -> str:
    """Cut: a cell is for looking at, not for reading a book."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
