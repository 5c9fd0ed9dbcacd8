"""From a checked file to the two blobs that the engine reads: training rows and held-out rows.

Equal prompts always land on the same side, or the held-out reward would measure memory. The split is a pure function of the prompts and the
seed: prompts are ranked by a seeded hash and the lowest are held out, as many as make up the share.
"""

from __future__ import annotations

import tempfile
from array import array
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, BinaryIO

from engine.blobs import BlobStore
from engine.spec import BlobRef
from portal.datasets import rows
from portal.datasets.validate import Checked, lines


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    train: BlobRef
    train_rows: int
    eval: BlobRef | None
    eval_rows: int


def write(file: BinaryIO, checked: Checked, blobs: BlobStore, *, eval_share: float, seed: int) -> Parts:
    """Write both parts beside the store, then into it. ``file`` must be the one that ``checked`` is about, without errors."""
    threshold = held_out_below(checked.digests, eval_share, seed)
    blobs.root.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        train, held_out = (stack.enter_context(tempfile.NamedTemporaryFile(dir=blobs.root, prefix="staging-")) for _ in range(2))
        counts = _write_rows(file, checked.digests, threshold, seed, train, held_out)
        for part in (train, held_out):
            part.flush()
        return Parts(
            train=blobs.put(Path(train.name)),
            train_rows=counts[0],
            eval=blobs.put(Path(held_out.name)) if counts[1] else None,
            eval_rows=counts[1],
        )


def held_out_below(digests: array[int], share: float, seed: int) -> int:
    """Rows whose seeded rank lies below this are held out: as close to ``share`` as whole prompts allow, and never all rows."""
    wanted = round(len(digests) * share)
    if not wanted:
        return 0
    ranks = array("Q", sorted(rank(digest, seed) for digest in digests))
    if ranks[0] == ranks[-1]:
        return 0
    threshold = ranks[wanted] if wanted < len(ranks) else ranks[-1]
    return threshold if threshold > ranks[0] else next(r for r in ranks if r > ranks[0])


def rank(digest: int, seed: int) -> int:
    return int.from_bytes(blake2b(digest.to_bytes(8, "little"), digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")


def _write_rows(file: BinaryIO, digests: array[int], threshold: int, seed: int, train: IO[bytes], held_out: IO[bytes]) -> tuple[int, int]:
    counts = [0, 0]
    for index, (_, line) in enumerate(lines(file)):
        side = threshold > 0 and rank(digests[index], seed) < threshold
        (held_out if side else train).write(rows.canonical(index, rows.parse(line)))
        counts[side] += 1
    return counts[0], counts[1]
