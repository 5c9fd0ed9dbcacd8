"""Evaluations and findings, on their page and in the API; the rows come from the engine, which may be away."""

from __future__ import annotations

from typing import Any

import pytest

from portal.jobs.models import Job, JobEvent
from tests.portal import fake_script
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World


@pytest.fixture
def job(world: World, engine: FakeEngine) -> Job:
    """Evaluated at versions 0 and 30."""
    job = world.job()
    engine.jobs[job.public_id] = job.submission.body
    for version in (0, 30):
        tell(engine, job, "eval", **fake_script.eval_event(job.public_id, job.spec, version))
    return job


def tell(engine: FakeEngine, job: Job, kind: str, **data: Any) -> None:
    engine.emit(job.public_id, kind, **data)
    seq = JobEvent.objects.filter(job=job).count() + 1
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=seq, kind=kind, at=NOW, data=data)


def page(world: World, job: Job, version: str = "latest", **query: Any) -> Any:
    return world.client(world.vera).get(f"/jobs/{job.public_id}/evaluation/{version}/", query)


def test_the_page_says_whether_it_got_better_and_shows_each_row(world: World, job: Job) -> None:
    answer = page(world, job)
    html = answer.content.decode()
    found = answer.context["found"]
    assert (answer.status_code, found["version"], found["against"], found["total"]) == (200, 30, 0, 128)
    verdict = found["comparison"]["verdict"]
    assert verdict.startswith("better by") and verdict[1:] in html
    assert len(found["rows"]) == 25 and "Page 1 of 6" in html and "200+201=" in html


def test_rows_are_shown_by_what_became_of_them_a_page_at_a_time(world: World, job: Job) -> None:
    wins = page(world, job, show="win")
    assert {row["change"] for row in wins.context["found"]["rows"]} == {"win"}
    assert wins.context["found"]["total"] == wins.context["found"]["comparison"]["wins"]
    second = page(world, job, page="2").context["found"]["rows"]
    assert second[0]["row"] == page(world, job).context["found"]["rows"][-1]["row"] + 1
    assert "There are no rows on this page" in page(world, job, page="999").content.decode()


@pytest.mark.parametrize("query", [{"show": "everything"}, {"page": "x"}, {"page": "-1"}, {"page": "0"}, {"page": "²"}])
def test_an_address_typed_by_hand_shows_the_first_page(world: World, job: Job, query: dict[str, str]) -> None:
    assert page(world, job, **query).context["number"] == 1


def test_the_page_of_a_job_without_evaluations_says_so(world: World, engine: FakeEngine) -> None:
    answer = page(world, world.job())
    assert answer.status_code == 404 and "Nothing is evaluated yet" in answer.content.decode()


def test_the_start_alone_is_compared_with_nothing(world: World, engine: FakeEngine) -> None:
    job = world.job()
    engine.jobs[job.public_id] = job.submission.body
    tell(engine, job, "eval", **fake_script.eval_event(job.public_id, job.spec, 0))
    html = page(world, job).content.decode()
    assert "Nothing to compare with yet" in html and "The same on every row" not in html


def test_a_version_that_was_not_evaluated_leads_to_one_that_was(world: World, job: Job) -> None:
    answer = page(world, job, "7")
    assert answer.status_code == 404 and f"/jobs/{job.public_id}/evaluation/latest/" in answer.content.decode()
    assert page(world, job, "x").status_code == page(world, job, "1" * 8).status_code == 404


def test_an_engine_that_is_away_is_told_and_nothing_breaks(world: World, job: Job, engine: FakeEngine) -> None:
    engine.down = True
    answer = page(world, job)
    assert answer.status_code == 503 and "The engine does not answer" in answer.content.decode()


def test_what_a_model_said_cannot_become_markup(world: World, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_script, "_answer", lambda row, reward: {**ANSWER, "row": row, "reward": reward})
    html = page(world, job).content.decode()
    assert "&lt;script&gt;alert" in html and "<script>alert" not in html


ANSWER = {"invalid": None, "finish_reason": "stop", "sampled_tokens": 4, "sha256": "0" * 64, "text": "<script>alert(1)</script>"}


# The API


def test_the_api_tells_every_evaluation_and_the_best(world: World, job: Job) -> None:
    found = world.api(world.bob).get(f"/api/v1/jobs/{job.public_id}/evaluation/").json()
    assert found["best"] == 30
    assert [one["version"] for one in found["evaluations"]] == [0, 30]
    assert found["evaluations"][0]["comparison"] is None
    assert found["evaluations"][1]["comparison"]["wins"] > found["evaluations"][1]["comparison"]["losses"]


def test_evaluations_of_an_older_engine_are_told_too(world: World, engine: FakeEngine) -> None:
    job = world.job()
    for version, reward in ((0, 0.5), (10, 0.9), (20, 0.9)):
        old = {"version": version, "rows": 4, "reward_mean": reward, "invalid": 0, "temperature": 0.0, "sampled_tokens": 9, "seconds": 0.1}
        tell(engine, job, "eval", **old)
    found = world.api(world.bob).get(f"/api/v1/jobs/{job.public_id}/evaluation/").json()
    assert (found["best"], found["evaluations"][2]["comparison"]) == (10, None)


def test_the_api_gives_rows_in_pages(world: World, job: Job) -> None:
    path = f"/api/v1/jobs/{job.public_id}/evaluations/30/"
    whole = world.api(world.bob).get(path, {"limit": "1000"}).json()
    assert len(whole["rows"]) == whole["total"] == 128
    assert world.api(world.bob).get(path, {"offset": "3", "limit": "2"}).json()["rows"] == whole["rows"][3:5]
    losses = world.api(world.bob).get(path, {"change": "loss"}).json()
    assert {row["change"] for row in losses["rows"]} <= {"loss"}


@pytest.mark.parametrize(
    ("query", "param"), [({"change": "better"}, "change"), ({"offset": "-1"}, "offset"), ({"against": "x"}, "against")]
)
def test_a_bad_question_is_refused_by_name(world: World, job: Job, query: dict[str, str], param: str) -> None:
    answer = world.api(world.bob).get(f"/api/v1/jobs/{job.public_id}/evaluations/30/", query)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_the_api_says_what_is_missing_and_who_is_away(world: World, job: Job, engine: FakeEngine) -> None:
    path = f"/api/v1/jobs/{job.public_id}/evaluations/"
    assert world.api(world.bob).get(f"{path}7/").status_code == 404
    engine.down = True
    assert world.api(world.bob).get(f"{path}30/").status_code == 503


def test_findings_stand_until_they_are_over(world: World, engine: FakeEngine) -> None:
    job = world.job()
    truncation, drift = fake_script.finding(4), {**fake_script.finding(5), "code": "kl_drift"}
    tell(engine, job, "finding", **truncation)
    tell(engine, job, "finding", **drift)
    tell(engine, job, "finding_over", code="truncation", step=9)
    found = world.api(world.bob).get(f"/api/v1/jobs/{job.public_id}/doctor/").json()
    assert [one["code"] for one in found["standing"]] == ["kl_drift"]
    assert [(one["code"], bool(one["over_at"])) for one in found["over"]] == [("truncation", True)]
    assert found["standing"][0]["advice"] == drift["advice"]
