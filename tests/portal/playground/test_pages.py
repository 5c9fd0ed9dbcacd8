"""The playground's page, the rows it takes and the rewards it shows. What only a browser shows is in ``tests/browser``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from portal.jobs.models import Job
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World


@pytest.fixture
def job(world: World) -> Job:
    found = world.job()
    Job.objects.filter(pk=found.pk).update(version=5)
    return found


def grade(world: World, job: Job, body: Any, user: Any = None) -> Any:
    text = body if isinstance(body, str) else json.dumps(body)
    return world.client(user or world.bob).post(f"/playground/{job.public_id}/grade/", text, content_type="application/json")


def test_without_a_trained_job_the_base_model_is_alone(world: World) -> None:
    page = world.client(world.bob).get("/playground/")
    assert page.status_code == 200
    assert page.content.decode().count("data-pane") == 1
    assert "tiny-math" in page.content.decode()


def test_without_an_engine_that_ever_answered_the_page_says_so(world: World, engine: FakeEngine) -> None:
    engine.down = True
    page = world.client(world.bob).get("/playground/")
    assert (page.status_code, b"No model is known yet" in page.content) == (200, True)


def test_the_newest_trained_job_is_shown_first(world: World, job: Job) -> None:
    world.job()
    assert world.client(world.bob).get("/playground/").url == f"/playground/{job.public_id}/"


@pytest.mark.parametrize(
    ("query", "steps"),
    [
        ("", [5, 1]),
        ("?step=3", [3, 1]),
        ("?step=1", [1, None]),
        ("?step=3&against=2", [3, 2]),
        ("?step=&against=", [None, None]),
        ("?step=99&against=x", [5, 1]),
    ],
)
def test_base_and_two_steps_stand_side_by_side(world: World, job: Job, query: str, steps: list[int | None]) -> None:
    page = world.client(world.bob).get(f"/playground/{job.public_id}/{query}")
    assert page.context["steps"] == steps
    assert page.content.decode().count("data-pane") == 3


def test_a_row_is_a_held_out_one_with_what_the_reward_reads(world: World, job: Job) -> None:
    for _ in range(5):
        row = world.client(world.bob).get(f"/playground/{job.public_id}/row/").json()
        assert row["split"] == "eval"
        first, second = row["messages"][0]["content"].rstrip("=").split("+")
        assert row["item"]["answer"] == str(int(first) + int(second))


@pytest.mark.parametrize(("text", "reward"), [("42", 1.0), ("41", 0.0)])
def test_an_answer_gets_the_jobs_own_reward(world: World, job: Job, text: str, reward: float) -> None:
    answer = grade(world, job, {"text": text, "item": {"answer": "42"}}).json()
    assert (answer["reward"], answer["error"]) == (reward, None)


@pytest.mark.parametrize("body", ["{broken", [], {"text": 4, "item": {}}, {"text": "4"}, {"text": "x" * 300_000, "item": {}}])
def test_what_is_no_answer_is_refused(world: World, job: Job, body: Any) -> None:
    assert grade(world, job, body).status_code == 400


def test_an_engine_that_is_away_is_no_reward_of_0(world: World, engine: FakeEngine, job: Job) -> None:
    engine.down = True
    answer = grade(world, job, {"text": "42", "item": {}})
    assert (answer.status_code, "error" in answer.json()) == (503, True)


def test_a_viewer_looks_and_does_not_spend(world: World, job: Job) -> None:
    page = world.client(world.vera).get(f"/playground/{job.public_id}/")
    assert b"viewers spend none" in page.content
    assert grade(world, job, {"text": "42", "item": {}}, world.vera).status_code == 403


def test_the_run_page_leads_here(world: World, job: Job) -> None:
    page = world.client(world.bob).get(f"/jobs/{job.public_id}/")
    assert f"/playground/{job.public_id}/?step=" in page.content.decode()
