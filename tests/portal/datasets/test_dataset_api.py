"""Datasets over REST: every setting of the page, rows page by page, and refusals that list each line."""

from __future__ import annotations

import json
from typing import Any

from tests.portal.world import World, additions, jsonl

V1 = "/api/v1/datasets/"


def test_a_mapping_is_proposed_and_told(world: World) -> None:
    rows = jsonl(*({"question": f"{n}?", "answer": f"It is\n#### {n}"} for n in range(20)))
    answer = world.api(world.bob).post(V1, {"name": "gsm", "file": rows}).json()
    assert answer["report"]["proposed"]["kind"] == "gsm8k"
    assert answer["recipe"]["mapping"]["extract"] == "hash"


def test_a_mapping_can_be_given(world: World) -> None:
    mapping = json.dumps({"prompt": "a", "answer": "b"})
    rows = jsonl(*({"a": f"{n}?", "b": str(n)} for n in range(20)))
    made = world.api(world.bob).post(V1, {"name": "x", "file": rows, "mapping": mapping}).json()
    found = world.api(world.bob).get(f"{V1}{made['id']}/rows/?limit=1").json()
    assert found["rows"][0]["messages"] == [{"role": "user", "content": "0?"}]
    assert found["rows"][0]["item"]["answer"] == "0"


def refused(world: World, **fields: Any) -> dict[str, Any]:
    answer = world.api(world.bob).post(V1, {"name": "x", "file": additions(20), **fields})
    assert answer.status_code == 400
    return answer.json()["error"]


def test_bad_settings_are_named(world: World) -> None:
    assert refused(world, mapping="{")["param"] == "mapping"
    assert refused(world, mapping='{"colour": "x"}')["param"] == "mapping"
    assert refused(world, encoding="klingon")["param"] == "encoding"
    assert refused(world, model="nobody")["param"] == "model"
    assert refused(world, series="ds_nobody")["param"] == "series"
    assert not world.sums.datasets.exists()


def test_each_bad_line_is_a_problem_of_its_own(world: World) -> None:
    problems = refused(world, file=jsonl({"prompt": "x"}, "{broken", {"prompt": ""}))["problems"]
    assert [problem["message"].partition(":")[0] for problem in problems] == ["line 2", "line 3"]


def test_a_held_out_file_and_a_new_version(world: World) -> None:
    first = world.dataset()
    held_out = jsonl({"prompt": "held", "answer": "1"})
    order = {"name": "x", "file": additions(20), "eval_file": held_out, "series": first.public_id}
    made = world.api(world.bob).post(V1, order).json()
    assert (made["eval"]["rows"], made["version"], made["series"]) == (1, 2, first.public_id)


def test_rows_are_paged_and_searched(world: World) -> None:
    dataset, api = world.dataset(rows=60), world.api(world.bob)
    seen, start = [], 0
    while start is not None:
        found = api.get(f"{V1}{dataset.public_id}/rows/?limit=20&from={start}").json()
        seen += [row["row"] for row in found["rows"]]
        start = found["next"]
    assert len(seen) == dataset.train_rows
    assert all("17+18=" in json.dumps(row) for row in api.get(f"{V1}{dataset.public_id}/rows/?q=17%2B18").json()["rows"])
    assert api.get(f"{V1}{dataset.public_id}/rows/?split=test").status_code == 400


def test_lengths_are_measured_on_request(world: World) -> None:
    dataset = world.dataset()
    answer = world.api(world.bob).post(f"{V1}{dataset.public_id}/lengths/", {"model": "tiny-math"}, content_type="application/json")
    assert (answer.status_code, answer.json()["rows"]) == (202, 40)
