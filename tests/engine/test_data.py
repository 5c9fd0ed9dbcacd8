from __future__ import annotations

import json

import pytest

from engine.blobs import BlobStore
from engine.data import BadRow, Datasets, RowFile, eval_rows, permuted, step_rows


def line(row: int) -> str:
    return json.dumps({"row": row, "messages": [{"role": "user", "content": f"ü{row}"}], "item": {"answer": str(row)}}, ensure_ascii=False)


@pytest.fixture
def rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(line(row) for row in range(100, 110)) + "\n")
    return RowFile(path)


def test_rows_are_read_by_position_in_any_order(rows):
    assert [row.row for row in rows.rows([7, 0, 9])] == [107, 100, 109]
    assert len(rows) == 10


def test_a_row_carries_its_messages_and_its_item(rows):
    [row] = rows.rows([3])
    assert (row.messages, row.item) == ([{"role": "user", "content": "ü103"}], {"answer": "103"})


def test_a_file_without_a_last_newline_has_all_its_rows(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(line(1) + "\n" + line(2))
    assert [row.row for row in RowFile(path).rows([0, 1])] == [1, 2]


def test_a_position_beyond_the_file_is_an_error(rows):
    with pytest.raises(IndexError, match="10 of 10"):
        rows.rows([10])


def test_a_broken_line_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(line(1) + "\n{\n")
    with pytest.raises(BadRow, match="line 2"):
        RowFile(path).rows([1])


def test_only_the_recently_used_indices_stay_in_memory(tmp_path):
    blobs = BlobStore(tmp_path)
    datasets = Datasets(blobs, keep=1)
    first, second = blobs.put(line(1).encode()), blobs.put(line(2).encode())
    kept = datasets.file(first)
    assert datasets.file(first) is kept
    datasets.file(second)
    assert datasets.file(first) is not kept


@pytest.mark.parametrize("size", [1, 2, 3, 16, 17, 1000])
def test_a_permutation_holds_each_index_once(size):
    assert sorted(permuted(index, size, "key") for index in range(size)) == list(range(size))


def test_an_epoch_takes_each_row_once_and_the_next_in_another_order():
    first = [row for version in range(4) for row in step_rows(16, 4, 7, version)]
    second = [row for version in range(4, 8) for row in step_rows(16, 4, 7, version)]
    assert sorted(first) == sorted(second) == list(range(16))
    assert first != second


def test_no_step_holds_a_row_twice():
    for version in range(50):
        assert len(set(step_rows(10, 7, 1, version))) == 7


def test_the_rows_of_a_step_depend_on_seed_and_version_only():
    assert step_rows(1000, 16, 3, 5) == step_rows(1000, 16, 3, 5)
    assert step_rows(1000, 16, 3, 5) != step_rows(1000, 16, 4, 5)
    assert step_rows(1000, 16, 3, 5) != step_rows(1000, 16, 3, 6)


def test_a_dataset_smaller_than_a_step_is_refused():
    with pytest.raises(ValueError, match="3 rows cannot fill"):
        step_rows(3, 4, 0, 0)


def test_an_evaluation_takes_the_first_rows():
    assert eval_rows(5, 3) == [0, 1, 2]
    assert eval_rows(2, 3) == [0, 1]
