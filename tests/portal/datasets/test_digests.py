"""Repeats and the split are found the same way whether digests fit in memory or spill to sorted runs."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from portal.datasets.digests import LISTED, Digests, rank


def filled(values: list[int], run_rows: int) -> Digests:
    digests = Digests(run_rows=run_rows)
    for line, value in enumerate(values, start=1):
        digests.append(value, line)
    return digests


def some(count: int, different: int, seed: int = 0) -> list[int]:
    rng = random.Random(seed)
    pool = [rng.getrandbits(64) for _ in range(different)]
    return [rng.choice(pool) for _ in range(count)]


@pytest.mark.parametrize("run_rows", [64, 300, 10_000])
def test_repeats_are_those_of_a_plain_count(run_rows: int) -> None:
    values = some(1000, 700)
    first: dict[int, int] = {}
    expected = [(line, first[v]) for line, v in enumerate(values, start=1) if first.setdefault(v, line) != line]
    assert filled(values, run_rows).repeats(50) == (len(expected), expected[:50])


@pytest.mark.parametrize("run_rows", [150, 100_000])
def test_one_prompt_over_and_over_is_counted_and_not_held(run_rows: int) -> None:
    digests = filled([42] * 1000, run_rows)
    total, nearest = digests.repeats(100)
    assert (total, nearest) == (999, [(line, 1) for line in range(2, 102)])
    assert sum(len(shard) for shard in digests.shards()) <= LISTED * (1000 // run_rows + 1)


@pytest.mark.parametrize("run_rows", [60, 10_000])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_threshold_holds_out_the_wanted_share(run_rows: int, share: float) -> None:
    values = some(500, 100_000)
    threshold = filled(values, run_rows).held_out_below(share, seed=3)
    assert sum(rank(value, 3) < threshold for value in values) == round(500 * share)


def test_prompts_stay_whole_and_some_are_left() -> None:
    values = [1] * 60 + [2] * 40
    threshold = filled(values, 16).held_out_below(0.9, seed=0)
    held_out = Counter(value for value in values if rank(value, 0) < threshold)
    assert len(held_out) == 1


@pytest.mark.parametrize("run_rows", [2, 10_000])
def test_shared_prompts_of_two_files_are_found(run_rows: int) -> None:
    train, held_out = filled([10 << 50, 20 << 50, 30 << 50], run_rows), filled([20 << 50, 7, 20 << 50, 30 << 50], run_rows)
    assert train.shared_with(held_out, 2) == (3, [(1, 2), (3, 2)])


def test_closing_removes_the_file() -> None:
    digests = filled(some(100, 100), 10)
    file = digests._file
    digests.close()
    assert file.closed
