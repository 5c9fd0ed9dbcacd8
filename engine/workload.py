"""Datasets of generated tasks in the engine's own canonical form, for the demo, the bench and tests. The portal makes its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from engine.blobs import BlobStore
from engine.models import tasks
from engine.spec import DatasetRef


def dataset_of(blobs: BlobStore, task: str, *, rows: int, eval_rows: int = 0, seed: int = 0) -> DatasetRef:
    """``rows`` training rows and ``eval_rows`` held-out ones of ``task``, with different prompts. Raises ``tasks.TooFewPrompts``."""
    train = tasks.rows(task, count=rows, seed=seed)
    held_out = tasks.rows(task, count=eval_rows, seed=seed, split="eval") if eval_rows else []
    return DatasetRef(
        version=f"{task}-{seed}-{rows}-{eval_rows}",
        train=blobs.put(canonical(train)),
        train_rows=rows,
        eval=blobs.put(canonical(held_out, first_row=rows)) if held_out else None,
        eval_rows=eval_rows,
    )


def canonical(items: Sequence[dict[str, Any]], *, first_row: int = 0) -> bytes:
    """JSON Lines as ``engine.data`` reads them. An item has ``messages``, or a ``prompt`` that becomes the user's one message."""
    lines = ({"row": row, "messages": _messages(item), "item": item} for row, item in enumerate(items, first_row))
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _messages(item: dict[str, Any]) -> list[dict[str, str]]:
    return item["messages"] if "messages" in item else [{"role": "user", "content": item["prompt"]}]
