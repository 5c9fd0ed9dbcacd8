from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.blobs import BlobStore
from engine.data import RowFile
from portal.datasets import canonical
from portal.datasets.actions import DatasetInvalid, create_dataset
from portal.datasets.models import Dataset
from portal.datasets.validate import validate
from portal.errors import Invalid
from tenants.access import Forbidden
from tests.portal.world import World, additions, jsonl


def split(file: Any, blobs: BlobStore, share: float = 0.1, seed: int = 0) -> tuple[list[dict], list[dict]]:
    parts = canonical.write(validate(file, max_bytes=1 << 24), blobs, eval_share=share, seed=seed)
    read = lambda ref: [json.loads(line) for line in blobs.open(ref)] if ref else []  # noqa: E731
    return read(parts.train), read(parts.eval)


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs")


def test_every_row_is_on_exactly_one_side(blobs: BlobStore) -> None:
    train, held_out = split(additions(100), blobs)
    assert sorted(row["row"] for row in train + held_out) == list(range(100))
    assert len(held_out) == 10


def test_equal_prompts_are_on_one_side(blobs: BlobStore) -> None:
    rows = [{"prompt": f"{n % 20}", "answer": str(n)} for n in range(200)]
    train, held_out = split(jsonl(*rows), blobs, share=0.3)
    prompts = [{row["messages"][0]["content"] for row in side} for side in (train, held_out)]
    assert not prompts[0] & prompts[1]
    assert len(held_out) == 60


def test_the_split_depends_on_the_seed_alone(blobs: BlobStore) -> None:
    assert split(additions(100), blobs, seed=1) == split(additions(100), blobs, seed=1)
    assert split(additions(100), blobs, seed=1) != split(additions(100), blobs, seed=2)


@pytest.mark.parametrize(("rows", "share", "held_out"), [(1, 0.5, 0), (2, 0.5, 1), (10, 0, 0), (10, 0.9, 9), (4, 0.1, 0)])
def test_small_datasets_keep_a_row_to_train_on(blobs: BlobStore, rows: int, share: float, held_out: int) -> None:
    assert len(split(additions(rows), blobs, share=share)[1]) == held_out


def test_one_prompt_repeated_is_never_held_out(blobs: BlobStore) -> None:
    train, held_out = split(jsonl(*[{"prompt": "x"}] * 10), blobs, share=0.5)
    assert (len(train), held_out) == (10, [])


def test_the_engine_reads_what_the_portal_writes(world: World, settings) -> None:
    dataset = world.dataset()
    rows = RowFile(BlobStore(settings.BLOBS_DIR).path(dataset.ref().train))
    first = rows.rows([0])[0]
    assert len(rows) == dataset.train_rows == 36
    assert first.messages == [{"role": "user", "content": first.item["prompt"]}]
    assert first.item["answer"] == str(2 * first.row + 1)


def stored(settings) -> list[Path]:
    return [path for path in Path(settings.BLOBS_DIR).rglob("*") if path.is_file()]


def test_a_refused_file_leaves_nothing(world: World, settings) -> None:
    with pytest.raises(DatasetInvalid) as refused:
        create_dataset(world.sums, world.alice, "bad", jsonl({"prompt": "x"}, "{broken"))
    assert refused.value.report["errors"][0]["line"] == 2
    assert "line 2" in str(refused.value)
    assert (Dataset.objects.count(), stored(settings)) == (0, [])


def test_a_store_that_fails_midway_leaves_no_row(world: World, settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(BlobStore, "put", fail)
    with pytest.raises(OSError, match="disk full"):
        world.dataset()
    assert (Dataset.objects.count(), stored(settings)) == (0, [])


def test_a_viewer_may_not_upload(world: World) -> None:
    with pytest.raises(Forbidden):
        create_dataset(world.sums, world.vera, "x", additions(10))


@pytest.mark.parametrize("share", [-0.1, 0.95])
def test_a_share_out_of_range_is_named(world: World, share: float) -> None:
    with pytest.raises(Invalid) as refused:
        create_dataset(world.sums, world.alice, "x", additions(10), eval_share=share)
    assert "eval_share" in dict(refused.value.problems)


def test_the_row_says_what_was_stored(world: World) -> None:
    dataset = world.dataset()
    assert (dataset.rows, dataset.train_rows, dataset.eval_rows, dataset.columns) == (40, 36, 4, ["prompt", "answer"])
    assert dataset.ref().eval_rows == 4
