"""Rows of a stored dataset: found by number, read forwards and backwards, searched as people see them."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from portal.datasets import preview
from portal.datasets.models import Dataset
from portal.datasets.preview import offset_of, page
from tests.portal.world import World, jsonl


def numbers(dataset: Dataset, **asked: Any) -> list[int]:
    return [row.row for row in page(dataset, "train", **asked).rows]


@pytest.fixture
def dataset(world: World) -> Dataset:
    return world.dataset(rows=100)


def test_a_row_is_found_by_halving_whatever_its_length() -> None:
    wanted = [3, 4, 9, 20, 21, 50]
    lines = [json.dumps({"row": number, "pad": "x" * (number * 37 % 400)}).encode() + b"\n" for number in wanted]
    file, size = io.BytesIO(b"".join(lines)), sum(map(len, lines))
    for row in range(60):
        position = next((index for index, number in enumerate(wanted) if number >= row), len(wanted))
        assert offset_of(file, size, row) == sum(map(len, lines[:position])), row


def test_pages_follow_one_another_without_gap(dataset: Dataset) -> None:
    seen, start = [], 0
    while start is not None:
        found = page(dataset, "train", start=start, limit=7)
        seen += [row.row for row in found.rows]
        start = found.next_row
    assert (len(seen), seen) == (dataset.train_rows, sorted(set(seen)))


def test_the_page_before_ends_where_this_one_begins(dataset: Dataset) -> None:
    second = page(dataset, "train", start=numbers(dataset, limit=40)[20], limit=10)
    before = page(dataset, "train", start=second.before, limit=10)
    assert [row.row for row in before.rows] == numbers(dataset, limit=40)[10:20]
    assert page(dataset, "train", limit=10).before is None


def test_a_number_beyond_the_end_shows_nothing(dataset: Dataset) -> None:
    assert numbers(dataset, start=10**9) == []


def test_held_out_rows_have_a_page_of_their_own(dataset: Dataset, world: World) -> None:
    html = world.client(world.bob).get(f"/datasets/{dataset.public_id}/?split=eval").content.decode()
    assert html.count('class="row-item"') == dataset.eval_rows == 10


def texts(world: World) -> Dataset:
    from portal.datasets.actions import create_dataset

    rows = [{"prompt": f"row {n}", "answer": answer} for n, answer in enumerate(["plain", 'a "quoted" one', "two\nlines", "Käse", "plain"])]
    return create_dataset(world.sums, world.alice, "texts", jsonl(*rows), eval_share=0)


@pytest.mark.parametrize(
    ("needle", "rows"),
    [
        ("PLAIN", [0, 4]),
        ('"quoted"', [1]),
        ("two\nlines", [2]),
        ("KÄSE", [3]),
        ("row 3", [3]),
        ("user", []),
        ("messages", []),
        ("item", []),
    ],
)
def test_a_search_finds_what_people_see_and_not_how_it_is_stored(world: World, needle: str, rows: list[int]) -> None:
    assert numbers(texts(world), needle=needle) == rows


def test_a_long_search_stops_and_can_go_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "SEARCH_SECONDS", -1.0)
    found = page(texts(world), "train", needle="nowhere")
    assert (found.rows, found.unfinished, found.next_row) == ([], True, 1)


def test_a_search_without_result_says_so(world: World, dataset: Dataset) -> None:
    assert "Nothing found" in world.client(world.bob).get(f"/datasets/{dataset.public_id}/?q=zebra").content.decode()


def test_a_chat_is_shown_turn_by_turn(world: World) -> None:
    from portal.datasets.actions import create_dataset

    turns = [{"role": role, "content": f"said by {role}"} for role in ("system", "user", "assistant", "user")]
    dataset = create_dataset(world.sums, world.alice, "chats", jsonl({"messages": turns, "answer": "x"}), eval_share=0)
    html = world.client(world.bob).get(f"/datasets/{dataset.public_id}/").content.decode()
    assert [html.count(f"bubble-{role}") for role in ("system", "user", "assistant")] == [1, 2, 1]
    assert html.index("said by system") < html.index("said by assistant")
