"""The first rows of a stored dataset, as a page shows them. Reads line by line: a dataset of any size costs the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from django.conf import settings

from engine.blobs import BlobStore
from portal.datasets.models import Dataset

MAX_COLUMNS = 8
MAX_CHARACTERS = 2000
_PROMPTS = ("prompt", "messages")


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviewRow:
    """``turns``: (role, text) of the prompt; ``values``: one text per shown column."""

    row: int
    turns: list[tuple[str, str]]
    values: list[str]

    @property
    def plain(self) -> bool:
        """One question of the user: its role goes without saying."""
        return len(self.turns) == 1 and self.turns[0][0] == "user"


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview:
    columns: list[str]
    rows: list[PreviewRow]


def preview(dataset: Dataset, limit: int = 50) -> Preview:
    """The first ``limit`` rows with the columns that the first one has besides its prompt."""
    with _store(settings.BLOBS_DIR).open(dataset.ref().train) as file:
        lines = [json.loads(line) for line in islice(file, limit)]
    columns = [name for name in lines[0]["item"] if name not in _PROMPTS][:MAX_COLUMNS]
    return Preview(columns=columns, rows=[_row(line, columns) for line in lines])


def first_item(dataset: Dataset) -> dict[str, Any]:
    """The columns of the first row, for a reward's example."""
    with _store(settings.BLOBS_DIR).open(dataset.ref().train) as file:
        return json.loads(next(iter(file)))["item"]


@cache
def _store(root: Path) -> BlobStore:
    """One for the process: it verifies each blob once, not on every view of a page."""
    return BlobStore(root)


def _row(line: dict[str, Any], columns: list[str]) -> PreviewRow:
    turns = [(turn["role"], _text(turn["content"])) for turn in line["messages"]]
    return PreviewRow(row=line["row"], turns=turns, values=[_text(line["item"].get(name, "")) for name in columns])


def _text(value: Any) -> str:
    """Cut: a cell is for looking at, not for reading a book."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
