"""The first rows of a stored dataset, as a page shows them. Reads line by line: a dataset of any size costs the same."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from django.conf import settings

from engine.blobs import BlobStore
from portal.datasets.models import Dataset


@dataclass(frozen=True, kw_only=True, slots=True)
class PreviewRow:
    """``turns``: (role, text) of the prompt; ``item``: the other columns as (name, text)."""

    row: int
    turns: list[tuple[str, str]]
    item: list[tuple[str, str]]


def first_rows(dataset: Dataset, limit: int = 20) -> list[PreviewRow]:
    with _store().open(dataset.ref().train) as file:
        return [_row(json.loads(line)) for line in islice(file, limit)]


def first_item(dataset: Dataset) -> dict[str, Any]:
    """The columns of the first row, for a reward's example."""
    with _store().open(dataset.ref().train) as file:
        return json.loads(next(iter(file)))["item"]


@cache
def _store() -> BlobStore:
    """One for the process: it verifies each blob once, not on every view of a page."""
    return BlobStore(settings.BLOBS_DIR)


def _row(line: dict[str, Any]) -> PreviewRow:
    turns = [(turn["role"], _text(turn["content"])) for turn in line["messages"]]
    shown = [(name, _text(value)) for name, value in line["item"].items() if name not in ("prompt", "messages")]
    return PreviewRow(row=line["row"], turns=turns, item=shown)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
