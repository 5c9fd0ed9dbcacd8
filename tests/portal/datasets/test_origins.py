"""Rows that nobody uploads: seeded, bounded by size and time, and refused in a sentence."""

from __future__ import annotations

import json
import textwrap
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from portal.datasets import gym_child, hub_child, origins, uploads, word_problems
from portal.datasets.origins import OriginFailed, fetch
from tests.portal.world import World

LEVELS = sorted(word_problems.LEVELS)


def made(level: int, seed: int = 0, count: int = 200) -> list[dict[str, Any]]:
    return list(word_problems.rows(count, seed=seed, level=level))


@pytest.mark.parametrize("level", LEVELS)
def test_the_same_seed_makes_the_same_problems_and_no_problem_comes_twice(level: int) -> None:
    problems = made(level)
    assert problems == made(level)
    assert problems != made(level, seed=1)
    assert len({problem["prompt"] for problem in problems}) == 200


@pytest.mark.parametrize("level", LEVELS)
def test_answers_are_whole_numbers_and_each_level_has_several_templates(level: int) -> None:
    problems = made(level)
    assert all(problem["answer"].isdigit() for problem in problems)
    assert len({problem["template"] for problem in problems}) >= 3


def test_the_arithmetic_is_right() -> None:
    import re

    for problem in made(1) + made(2):
        a, b = map(int, re.findall(r"\d+", problem["prompt"]))
        assert int(problem["answer"]) == {"gain": a + b, "loss": a - b, "product": a * b}[problem["template"]]


def test_a_share_is_a_share() -> None:
    import re

    for problem in (row for row in made(4, count=400) if row["template"] == "share"):
        monday, tuesday, broken, people = map(int, re.findall(r"\d+", problem["prompt"]))
        assert (monday + tuesday - broken) == people * int(problem["answer"])


def test_more_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    only = word_problems.Problem(text="1+1?", answer=2, template="one")
    monkeypatch.setattr(word_problems, "_TEMPLATES", {1: (lambda rng: only,)})
    with pytest.raises(word_problems.Exhausted, match="ask for fewer rows or a higher level"):
        made(1, count=2)


def test_the_page_makes_a_dataset_of_them(world: World) -> None:
    form = {"level": "3", "rows": "50", "generator_seed": "9", "eval_share": "0.2"}
    world.client(world.bob).post("/datasets/generate/?with=words", form)
    upload = world.sums.uploads.get()
    assert upload.origin == {"kind": "words", "level": 3, "rows": 50, "seed": 9}


def run(upload: Any) -> Any:
    uploads.process(upload.pk, upload.attempt)
    upload.refresh_from_db()
    return upload


def test_a_generated_dataset_says_how_it_was_made(world: World) -> None:
    origin = {"kind": "words", "level": 2, "rows": 30, "seed": 1}
    order = {"name": "Words", "filename": "words", "options": {}, "origin": origin}
    upload = run(uploads.begin(world.sums, world.alice, datetime.now(UTC), **order))
    dataset = world.sums.datasets.get(public_id=upload.stored_as)
    assert (dataset.rows, dataset.recipe["origin"], dataset.columns) == (30, origin, ["prompt", "answer", "level", "template"])


def child(tmp_path: Path, source: str) -> Path:
    path = tmp_path / "child.py"
    path.write_text(textwrap.dedent(source))
    return path


HUB = {"kind": "hub", "name": "owner/name", "file": "", "revision": ""}


def fetched(tmp_path: Path, source: str, limit_bytes: int = 1 << 20) -> tuple[str, Path]:
    path = tmp_path / "rows"
    return fetch(HUB, path, limit_bytes=limit_bytes, beat=lambda: None, hub_child=child(tmp_path, source)), path


def test_a_file_of_the_hub_arrives_whole(tmp_path: Path) -> None:
    name, path = fetched(tmp_path, 'import sys\nopen(sys.argv[2], "w").write("{}")\nprint(\'{"filename": "train.jsonl"}\')')
    assert (name, path.read_text()) == ("train.jsonl", "{}")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('import sys\nsys.stderr.write("no such dataset")\nsys.exit(3)', "no such dataset"),
        ('raise ValueError("strange")', "the hub failed: ValueError: strange"),
        ("import time\ntime.sleep(60)", "did not end within"),
        ('import sys, time\nopen(sys.argv[2], "w").write("x" * 5000)\ntime.sleep(60)', "more than 1,000 bytes"),
    ],
)
def test_what_goes_wrong_at_the_hub_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    monkeypatch.setattr(origins, "HUB_SECONDS", 1.5 if "did not end" in told else 60.0)
    with pytest.raises(OriginFailed, match=told):
        fetched(tmp_path, source, limit_bytes=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["child.py"]


def test_the_hub_sees_no_secret_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARLAAS_SECRET_KEY", "x")
    monkeypatch.setenv("HF_TOKEN", "x")
    _, path = fetched(tmp_path, 'import os, sys\nopen(sys.argv[2], "w").write(" ".join(os.environ))\nprint(\'{"filename": "x"}\')')
    assert not {"MARLAAS_SECRET_KEY", "HF_TOKEN"} & set(path.read_text().split())


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        (["README.md", "data/test.parquet", "data/train-00000.parquet"], "data/train-00000.parquet"),
        (["train.json", "train.jsonl"], "train.jsonl"),
        (["rows.csv"], "rows.csv"),
    ],
)
def test_the_first_file_of_training_rows_is_chosen(files: list[str], chosen: str) -> None:
    assert hub_child.choose([(name, 1) for name in files], "")[0] == chosen


@pytest.mark.parametrize(("files", "wanted"), [(["README.md"], ""), (["a.csv"], "b.csv")])
def test_no_file_to_choose_is_refused(files: list[str], wanted: str) -> None:
    with pytest.raises(SystemExit) as ended:
        hub_child.choose([(name, 1) for name in files], wanted)
    assert ended.value.code == 3


@pytest.mark.parametrize("name", ["../etc/passwd", "a/b/c", "http://x/y", "", "-x/y"])
def test_a_name_that_is_none_is_refused_at_its_field(world: World, name: str) -> None:
    answer = world.client(world.bob).post("/datasets/import/", {"hub_name": name, "eval_share": "0.1"})
    assert (answer.status_code, "hub_name" in answer.context["form"].errors) == (422, True)


def test_without_the_extra_the_page_says_what_to_install(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "gym_is_here", lambda: False)
    monkeypatch.setattr(origins, "_tasks", None)
    assert "reasoning-gym is not installed here" in world.client(world.bob).get("/datasets/generate/?with=gym").content.decode()
    with pytest.raises(OriginFailed, match="not installed"):
        fetch({"kind": "gym"}, Path("nowhere"), limit_bytes=1, beat=lambda: None)


def test_a_gym_row_is_a_prompt_with_its_answer_as_text() -> None:
    row = gym_child._row("sums", {"question": "1+1?", "answer": 2, "metadata": {"big": 1}})
    assert json.loads(json.dumps(row)) == {"prompt": "1+1?", "answer": "2", "task": "sums"}
