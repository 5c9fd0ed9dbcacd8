"""Digests of prompts, one per row, of any number in flat memory: full buffers are sorted and written to a file of runs.

What is asked of them (which prompts repeat, which rows are held out) is answered shard by shard: a shard holds the digests with the same
leading bits, from all runs. Rows with one and the same prompt would fill a shard, so a run lists at most ``LISTED`` of them and counts
the rest.
"""

from __future__ import annotations

import heapq
import tempfile
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from operator import eq
from typing import IO

RUN_ROWS = 1 << 18
SHARD_BITS = 10
LISTED = 101
_SHIFT = 64 - SHARD_BITS
_RECORD_BYTES = 8 + 8 + 4

# (digest, line of its row, further rows with the same digest that are not listed)
Entry = tuple[int, int, int]


class Run:
    """Sorted by digest, then line: three columns in memory."""

    def __init__(self, keys: array[int], lines: array[int]):
        order = sorted(range(len(keys)), key=keys.__getitem__)  # stable: lines stay in their order
        self.keys = array("Q", map(keys.__getitem__, order))
        self.lines = array("Q", map(lines.__getitem__, order))
        self.more = array("I", bytes(4 * len(order)))
        if any(map(eq, self.keys, islice(self.keys, 1, None))):
            self._thin()

    def _thin(self) -> None:
        """Keep ``LISTED`` entries of each digest and count the others in the last of them."""
        keys, lines, more = array("Q"), array("Q"), array("I")
        last, listed = -1, 0
        for key, line in zip(self.keys, self.lines, strict=True):
            listed = listed + 1 if key == last else 1
            last = key
            if listed > LISTED:
                more[-1] += 1
                continue
            keys.append(key)
            lines.append(line)
            more.append(0)
        self.keys, self.lines, self.more = keys, lines, more

    def shard(self, number: int) -> Iterator[Entry]:
        low, high = (bisect_left(self.keys, bound << _SHIFT) for bound in (number, number + 1))
        return zip(self.keys[low:high], self.lines[low:high], self.more[low:high], strict=True)

    def all(self) -> Iterator[Entry]:
        return zip(self.keys, self.lines, self.more, strict=True)


class StoredRun:
    """A run in ``file`` from ``offset``; in memory only where each shard begins."""

    def __init__(self, run: Run, file: IO[bytes]):
        self._file = file
        self._offset = file.seek(0, 2)
        self._length = len(run.keys)
        self._bounds = array("I", (bisect_left(run.keys, number << _SHIFT) for number in range(1 << SHARD_BITS)))
        self._bounds.append(self._length)
        for column in (run.keys, run.lines, run.more):
            column.tofile(file)

    def shard(self, number: int) -> Iterator[Entry]:
        low, high = self._bounds[number], self._bounds[number + 1]
        if low == high:
            return iter(())
        keys, lines, more = (self._column(code, start, low, high) for code, start in (("Q", 0), ("Q", 8), ("I", 16)))
        return zip(keys, lines, more, strict=True)

    def _column(self, code: str, bytes_before: int, low: int, high: int) -> array[int]:
        column: array[int] = array(code)
        self._file.seek(self._offset + bytes_before * self._length + low * column.itemsize)
        column.frombytes(self._file.read((high - low) * column.itemsize))
        return column


class Digests:
    """``append`` each row's digest with its line, then ask. ``close`` removes the file."""

    def __init__(self, *, run_rows: int = RUN_ROWS):
        self.rows = 0
        self._run_rows = run_rows
        self._keys, self._lines = array("Q"), array("Q")
        self._stored: list[StoredRun] = []
        self._file: IO[bytes] | None = None

    def append(self, digest: int, line: int) -> None:
        self._keys.append(digest)
        self._lines.append(line)
        self.rows += 1
        if len(self._keys) >= self._run_rows:
            self._spill()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._stored, self._file = [], None

    def shards(self) -> Iterator[list[Entry]]:
        """All entries in parts, each sorted, no digest in two of them."""
        tail = Run(self._keys, self._lines)
        if not self._stored:
            yield list(tail.all())
            return
        for number in range(1 << SHARD_BITS):
            yield sorted(entry for run in (*self._stored, tail) for entry in run.shard(number))

    def repeats(self, limit: int) -> tuple[int, list[tuple[int, int]]]:
        """(rows whose prompt an earlier row has, the first ``limit`` of them as (line, the prompt's first line))."""
        total, nearest = 0, []
        for shard in self.shards():
            found = list(_repeats(shard))
            total += sum(times for _, _, times in found)
            nearest = heapq.nsmallest(limit, [*nearest, *((line, first) for line, first, _ in found if line)])
        return total, nearest

    def shared_with(self, others: Digests, limit: int) -> tuple[int, list[tuple[int, int]]]:
        """(rows of ``others`` whose prompt is among these, the first ``limit`` of them as (line there, line here))."""
        total, nearest = 0, []
        theirs_by_shard = others._sharded()
        for number, mine in enumerate(self._sharded_lists()):
            first = dict(reversed([(digest, line) for digest, line, _ in mine]))
            found = [(line, first[digest], 1 + more) for digest, line, more in theirs_by_shard(number) if digest in first]
            total += sum(times for _, _, times in found)
            nearest = heapq.nsmallest(limit, [*nearest, *((line, here) for line, here, _ in found)])
        return total, nearest

    def held_out_below(self, share: float, seed: int) -> int:
        """Rows whose seeded rank lies below this are held out: as close to ``share`` as whole prompts allow, and never all rows."""
        wanted = round(self.rows * share)
        if not wanted:
            return 0
        lowest, next_lowest, coarse = _survey(self._ranks(seed))
        if next_lowest is None:
            return 0  # one prompt only
        bucket, before = _bucket_of(coarse, wanted)
        inside = Counter()
        for rank_, times in self._ranks(seed):
            if rank_ >> _COARSE_SHIFT == bucket:
                inside[rank_] += times
        threshold = _nth(inside, wanted - before)
        if threshold is None:  # all rows are wanted: leave the highest rank to train on
            threshold = max(inside)
        return threshold if threshold > lowest else next_lowest

    def _ranks(self, seed: int) -> Iterator[tuple[int, int]]:
        for shard in self.shards():
            for digest, _, more in shard:
                yield rank(digest, seed), 1 + more

    def _sharded(self):
        tail = Run(self._keys, self._lines)
        return lambda number: [entry for run in (*self._stored, tail) for entry in run.shard(number)]

    def _sharded_lists(self) -> Iterator[list[Entry]]:
        shard = self._sharded()
        return (sorted(shard(number)) for number in range(1 << SHARD_BITS))

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="digests-")  # noqa: SIM115, closed by ``close``
        self._stored.append(StoredRun(Run(self._keys, self._lines), self._file))
        self._keys, self._lines = array("Q"), array("Q")


def rank(digest: int, seed: int) -> int:
    """64 seeded bits that order prompts at random."""
    return int.from_bytes(blake2b(digest.to_bytes(8, "little"), digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")


_COARSE_SHIFT = 64 - 12


def _survey(ranks: Iterator[tuple[int, int]]) -> tuple[int, int | None, Counter[int]]:
    """(the lowest rank, the next above it, rows by the rank's leading bits)."""
    lowest, second, coarse = 1 << 64, 1 << 64, Counter()
    for rank_, times in ranks:
        coarse[rank_ >> _COARSE_SHIFT] += times
        if rank_ < lowest:
            lowest, second = rank_, lowest
        elif lowest < rank_ < second:
            second = rank_
    return lowest, second if second < 1 << 64 else None, coarse


def _bucket_of(coarse: Counter[int], wanted: int) -> tuple[int, int]:
    """(the bucket that holds the row number ``wanted`` from 0, rows before it); the last one when there are no more rows than that."""
    before = 0
    for bucket in sorted(coarse):
        if before + coarse[bucket] > wanted:
            return bucket, before
        before += coarse[bucket]
    return bucket, before - coarse[bucket]


def _nth(ranks: Counter[int], position: int) -> int | None:
    for rank_ in sorted(ranks):
        if position < ranks[rank_]:
            return rank_
        position -= ranks[rank_]
    return None


def _repeats(shard: list[Entry]) -> Iterator[tuple[int, int, int]]:
    """(line, first line with its prompt, times); line 0 for rows that are only counted."""
    last, first = -1, 0
    for digest, line, more in shard:
        if digest == last:
            yield line, first, 1
        else:
            last, first = digest, line
        if more:
            yield 0, first, more
