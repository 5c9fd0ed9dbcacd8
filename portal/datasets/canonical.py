"""From a checked file to the two blobs that the engine reads: training rows and held-out rows.

Equal prompts always land on the same side, or the held-out reward would measure memory. The split is a pure function of the prompts and the
seed: prompts are ranked by a seeded hash and the lowest are held out, as many as make up the share. Or a file of its own is held out.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from engine.blobs import BlobStore
from engine.spec import BlobRef
from portal.datasets import rows
from portal.datasets.digests import rank
from portal.datasets.rows import BadLine, Row
from portal.datasets.validate import PROGRESS_ROWS, Checked, Progress, prompt_digest


class FileChanged(RuntimeError):
    """A file that was checked without errors has an error now."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    train: BlobRef
    train_rows: int
    eval: BlobRef | None
    eval_rows: int


def write(
    checked: Checked,
    blobs: BlobStore,
    *,
    eval_share: float,
    seed: int,
    held_out: Checked | None = None,
    progress: Progress | None = None,
) -> Parts:
    """Write both parts beside the store, then into it. ``checked`` and ``held_out`` must be without errors, their files still open.

    ``progress`` hears the rows written so far. With ``held_out`` nothing is split off; its rows are numbered after the training rows.
    """
    threshold = 0 if held_out else checked.digests.held_out_below(eval_share, seed)
    blobs.root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        train, other = (stack.enter_context(tempfile.NamedTemporaryFile(dir=blobs.root, prefix="staging-")) for _ in range(2))
        counts = _write_rows(checked, threshold, seed, train, other, progress)
        if held_out:
            counts = counts[0], _write_all(held_out, checked.rows, other)
        for part in (train, other):
            part.flush()
        return Parts(
            train=blobs.put(Path(train.name)),
            train_rows=counts[0],
            eval=blobs.put(Path(other.name)) if counts[1] else None,
            eval_rows=counts[1],
        )


def renumbered(blobs: BlobStore, part: BlobRef, *, first_row: int) -> tuple[BlobRef, int]:
    """A stored part again, its rows numbered from ``first_row`` on; and how many they are."""
    count = 0
    with tempfile.NamedTemporaryFile(dir=blobs.root, prefix="staging-") as copy, blobs.path(part).open("rb") as lines:
        for count, line in enumerate(lines, start=1):
            copy.write(msgspec.json.encode({**msgspec.json.decode(line), "row": first_row + count - 1}) + b"\n")
        copy.flush()
        return blobs.put(Path(copy.name)), count


def _write_rows(
    checked: Checked, threshold: int, seed: int, train: IO[bytes], held_out: IO[bytes], progress: Progress | None
) -> tuple[int, int]:
    counts = [0, 0]
    for index, row in enumerate(_rows(checked)):
        if progress and index % PROGRESS_ROWS == 0:
            progress(index)
        side = threshold > 0 and rank(prompt_digest(row), seed) < threshold
        (held_out if side else train).write(rows.canonical(index, row))
        counts[side] += 1
    return counts[0], counts[1]


def _write_all(checked: Checked, first_row: int, target: IO[bytes]) -> int:
    count = 0
    for count, row in enumerate(_rows(checked), start=1):
        target.write(rows.canonical(first_row + count - 1, row))
    return count


def _rows(checked: Checked) -> Iterator[Row]:
    for line, record in checked.source.records():
        if isinstance(record, BadLine):
            raise FileChanged(f"line {line}: {record.message}")
        yield checked.read(record)
