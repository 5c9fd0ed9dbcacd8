"""Half of a character is told as that, wherever it stands, and not as an early end of the text."""

from __future__ import annotations

import io

import pytest

from portal.datasets.validate import Options, validate
from portal.escapes import lone_surrogate
from tests.portal.world import World


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (rb'{"a": "\\ud800"}', None),
        (rb'{"a": "\ud83d\ude00"}', None),
        (rb'{"a": "\u0041"}', None),
        (rb'{"a": "\ud800"}', 7),
        (rb'{"a": "\udc00"}', 7),
        (rb'{"a": "\ud83d\ude00\uD83D"}', 19),
        (rb'{"a": "\ud800\u0041"}', 7),
    ],
)
def test_it_is_found_where_it_begins(text: bytes, at: int | None) -> None:
    assert lone_surrogate(text) == at


def test_a_row_with_one_is_told_so() -> None:
    rows = b'{"prompt": "x"}\n{"prompt": "\\ud800"}\n'
    first = validate(io.BytesIO(rows), max_bytes=1 << 30, options=Options(filename="rows.jsonl")).report["errors"][0]
    assert (first["line"], first["message"]) == (2, "broken JSON: half a surrogate pair at position 13")
    assert "pairs" in first["fix"]


def test_a_body_with_one_is_told_so(world: World) -> None:
    answer = world.api(world.bob).post("/api/v1/rewards/", b'{"name": "\\ud800"}', content_type="application/json")
    assert answer.status_code == 400
    assert "half a surrogate pair at byte 10" in answer.json()["error"]["message"]
