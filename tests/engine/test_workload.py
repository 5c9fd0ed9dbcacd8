from __future__ import annotations

from engine.blobs import BlobStore
from engine.data import RowFile
from engine.workload import dataset_of


def test_a_generated_dataset_reads_like_a_tenant_s(tmp_path):
    blobs = BlobStore(tmp_path)
    dataset = dataset_of(blobs, "add", rows=20, eval_rows=5, seed=3)
    train, held_out = RowFile(blobs.path(dataset.train)), RowFile(blobs.path(dataset.eval))

    (first,) = train.rows([0])

    assert (len(train), len(held_out)) == (dataset.train_rows, dataset.eval_rows) == (20, 5)
    assert first.messages == [{"role": "user", "content": first.item["prompt"]}]
    assert {row.row for row in train.rows(list(range(20)))} | {row.row for row in held_out.rows(list(range(5)))} == set(range(25))


def test_held_out_prompts_are_not_trained_on(tmp_path):
    blobs = BlobStore(tmp_path)
    dataset = dataset_of(blobs, "max", rows=50, eval_rows=50)
    train, held_out = RowFile(blobs.path(dataset.train)), RowFile(blobs.path(dataset.eval))

    prompts = [{row.item["prompt"] for row in file.rows(list(range(50)))} for file in (train, held_out)]

    assert not prompts[0] & prompts[1]


def test_a_task_of_whole_chats_keeps_them(tmp_path):
    blobs = BlobStore(tmp_path)
    (row,) = RowFile(blobs.path(dataset_of(blobs, "words", rows=1).train)).rows([0])

    assert row.messages[-1]["role"] == "user"
    assert row.messages == row.item["messages"]
