"""Several engines, each with a base model of its own: who gets which job, and that one's troubles are not the other's."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from asgiref.sync import async_to_sync
from django.test import Client
from structlog.contextvars import bound_contextvars

from portal import gateway, health, metrics_state
from portal.console import engines as registry
from portal.console.models import Act
from portal.errors import Invalid
from portal.gateway import AsyncGateway
from portal.jobs import catalog, delivery, engines
from portal.jobs.ingest import Ingester
from portal.jobs.models import EngineCursor, EngineModel, Job, JobSubmission, State
from portal.rewards import lab
from portal.rewards.models import LabRun
from portal.rewards.trial import parse_trial
from tests.portal.fake_engine import TINY, FakeEngine
from tests.portal.rewards.trials import typed
from tests.portal.world import NOW, World, with_factor

QWEN = TINY.model_copy(update={"name": "qwen"})


@pytest.fixture
def qwen(world: World, engine: FakeEngine, settings: Any) -> Iterator[FakeEngine]:
    """A second engine, which the first one's fixture knows nothing of."""
    second = FakeEngine(secret=engine.secret)
    second.models = [QWEN]
    settings.ENGINES = {"qwen": "http://qwen"}
    doors = {"engine": engine, "qwen": second}
    settings.ENGINE_TRANSPORT = httpx.MockTransport(lambda request: doors[request.url.host].handle(request))
    gateway.forget()
    catalog.known_models(NOW)
    yield second
    gateway.forget()


def of_qwen(world: World) -> Job:
    job = world.job(base_model="qwen")
    delivery.deliver(job.pk, NOW)
    return job


def pull(engine: FakeEngine, name: str = "") -> None:
    async def announce(*what: Any) -> None: ...

    async def run() -> None:
        door = AsyncGateway("http://any", engine.secret, engine.transport())
        tell = {"announce": announce, "announce_reach": announce}
        await Ingester(gateway=door, name=name, **tell, clock=lambda: NOW, wait_seconds=0).pull()

    async_to_sync(run)()


def test_a_job_goes_to_the_engine_that_serves_its_model(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    mine, other = of_qwen(world), world.job()
    delivery.deliver(other.pk, NOW)
    assert (list(qwen.jobs), list(engine.jobs)) == ([mine.public_id], [other.public_id])


def test_the_door_offers_what_any_engine_serves_and_refuses_what_none_does(world: World, qwen: FakeEngine) -> None:
    assert [info.name for info in catalog.known_models(NOW)] == ["qwen", "tiny-math"]
    qwen.down = True
    assert [info.name for info in catalog.known_models(NOW + 2 * catalog.FRESH_FOR)] == ["qwen", "tiny-math"]


def test_what_two_engines_serve_is_the_first_one_s(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    qwen.models = [QWEN, TINY]
    catalog.refresh(NOW, "qwen")
    assert dict(EngineModel.objects.values_list("name", "served_by")) == {"tiny-math": "", "qwen": "qwen"}


def test_a_second_try_goes_where_the_first_one_went(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    job = world.job(base_model="qwen")
    qwen.slow = 1  # whether it took the job, nobody knows
    assert not delivery.deliver(job.pk, NOW)
    EngineModel.objects.filter(name="qwen").update(served_by="")  # the model has moved meanwhile
    assert delivery.deliver(job.pk, NOW + 2 * delivery.LEASE)
    assert (JobSubmission.objects.get(job=job).sent_to, engine.jobs) == ("qwen", {})


def test_its_wishes_and_questions_follow_it(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    job = of_qwen(world)
    for _ in range(2):  # the first meets the engine
        pull(qwen, "qwen")
    EngineModel.objects.all().delete()
    job.refresh_from_db()
    assert (job.engine, engines.name_of(job)) == (qwen.engine, "qwen")
    world.client(world.alice).post(f"/jobs/{job.public_id}/cancel/")
    delivery.deliver(job.pk, NOW)
    assert ("POST", f"/jobs/{job.public_id}/cancel") in qwen.calls and engine.jobs == {}


def test_each_journal_is_read_on_from_its_own_place(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    jobs = [of_qwen(world), world.job()]
    delivery.deliver(jobs[1].pk, NOW)
    for _ in range(2):
        pull(engine)
        pull(qwen, "qwen")
    assert {(cursor.name, cursor.engine, cursor.offset, cursor.current) for cursor in EngineCursor.objects.all()} == {
        ("", engine.engine, 1, True),
        ("qwen", qwen.engine, 1, True),
    }
    assert set(Job.objects.values_list("state", flat=True)) == {State.QUEUED}


def test_one_engine_s_new_journal_ends_its_own_jobs_only(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    lost, kept = of_qwen(world), world.job()
    delivery.deliver(kept.pk, NOW)
    for _ in range(2):
        pull(engine)
        pull(qwen, "qwen")
    pull(FakeEngine(secret=qwen.secret), "qwen")
    assert {job.pk: job.state for job in Job.objects.all()} == {lost.pk: State.FAILED, kept.pk: State.QUEUED}


def test_a_comparison_knows_whose_jobs_it_looks_at(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    of_qwen(world)
    pull(qwen, "qwen")
    pull(qwen, "qwen")
    pull(engine)
    engine.restart()
    pull(engine)
    pull(engine)
    assert Job.objects.get().state == State.QUEUED, "the first engine does not know it, and is not asked to"


def test_an_engine_that_is_named_no_more_is_away_and_its_jobs_wait(world: World, qwen: FakeEngine, settings: Any) -> None:
    job = world.job(base_model="qwen")
    JobSubmission.objects.update(sent_to="qwen")
    settings.ENGINES = {"llama": "http://qwen"}
    gateway.forget()
    assert not delivery.deliver(job.pk, NOW)
    assert "qwen is not configured any more" in JobSubmission.objects.get().last_error


def test_an_engine_that_is_down_keeps_nobody_else_s_jobs_waiting(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    stuck, other = [world.job(base_model="qwen") for _ in range(2)], world.job()
    qwen.down = True
    JobSubmission.objects.update(created_at=NOW - timedelta(minutes=1))
    assert delivery.sweep(NOW) == 2, "one of each engine"
    assert list(engine.jobs) == [other.public_id]
    qwen.down = False
    delivery.sweep(NOW + 2 * delivery.LEASE)
    assert list(qwen.jobs) == [job.public_id for job in stuck]


def test_the_console_shows_each_engine_and_does_its_deeds_to_the_one_that_is_meant(
    world: World, engine: FakeEngine, qwen: FakeEngine
) -> None:
    type(world.alice).objects.filter(pk=world.alice.pk).update(is_staff=True)
    client: Client = world.client(with_factor(world.alice))
    qwen.down = True
    page = client.get("/console/engines/").content.decode()
    assert "http://qwen" in page and "not ready" in page and ">ready<" in page
    qwen.down = False
    assert client.get("/console/?engine=engine:llama").status_code == 404
    assert client.get("/console/live/?engine=engine:qwen").json()["engine"]["away"] == ""
    assert client.post("/console/act/?deed=drain&about=engine:qwen", {"reason": "its disk is full"}).status_code == 302
    assert (qwen.admission, engine.admission, Act.objects.get().about) == ("drain", "open", "engine:qwen")


def test_readiness_and_metrics_name_the_one_that_is_away(world: World, qwen: FakeEngine) -> None:
    qwen.down = True
    assert health.engine() == "qwen: the engine does not answer"
    told = metrics_state.exposition(NOW + timedelta(seconds=1))
    assert b'marlaas_engine_answers{engine="qwen"} 0.0' in told and b'marlaas_engine_answers{engine="main"} 1.0' in told


@pytest.mark.parametrize(
    "ask",
    [
        lambda: health.engine(),
        lambda: metrics_state.exposition(NOW),
        lambda: registry.registry(NOW),
        lambda: catalog.known_models(NOW + 2 * catalog.FRESH_FOR),
    ],
    ids=["readiness", "metrics", "console", "models"],
)
def test_all_are_asked_at_the_same_time(
    world: World, engine: FakeEngine, qwen: FakeEngine, settings: Any, ask: Callable[[], object]
) -> None:
    """None is answered before each has been asked, and each hears for whose request it is."""
    doors, all_asked, heard = {"engine": engine, "qwen": qwen}, threading.Barrier(2), []

    def answer(request: httpx.Request) -> httpx.Response:
        heard.append(request.headers["X-Request-Id"])
        all_asked.wait(10)
        return doors[request.url.host].handle(request)

    settings.ENGINE_TRANSPORT = httpx.MockTransport(answer)
    gateway.forget()
    with bound_contextvars(request_id="req_1"):
        ask()
    assert heard == ["req_1", "req_1"]


GRADING = ("POST", "/graders/run")


def tried(world: World, **more: Any) -> LabRun:
    return lab.begin_run(world.sums, world.alice, {"type": "numeric"}, parse_trial({**typed(), **more}), NOW)


def test_a_trial_is_graded_by_the_engine_of_the_model_that_it_names(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    run = tried(world, base_model="qwen")
    assert run.state == run.State.SUCCEEDED
    assert GRADING in qwen.calls and GRADING not in engine.calls
    lab.stop_run(world.sums, world.alice, run, NOW)
    assert ("POST", f"/graders/runs/{run.public_id}/stop") in qwen.calls


def test_a_trial_that_names_no_model_is_the_first_engine_s(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    tried(world)
    assert GRADING in engine.calls and GRADING not in qwen.calls


def test_a_trial_on_the_engine_of_a_model_that_nobody_serves_is_refused(world: World, qwen: FakeEngine) -> None:
    with pytest.raises(Invalid, match="choose among qwen, tiny-math"):
        tried(world, base_model="llama")


def test_the_playground_grades_where_the_job_is(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    job, body = of_qwen(world), json.dumps({"text": "42", "item": {"answer": "42"}})
    page = world.client(world.alice)
    assert page.post(f"/playground/{job.public_id}/grade/", body, content_type="application/json").json()["reward"] == 1.0
    assert GRADING in qwen.calls and GRADING not in engine.calls


def test_the_lab_asks_for_the_model_where_there_are_several(world: World, engine: FakeEngine, qwen: FakeEngine) -> None:
    page, address = world.client(world.alice), f"/rewards/{world.reward().public_id}/lab/"
    assert 'name="try-base_model"' in page.get(address).content.decode()
    form = {"do": "run", "try-on": "text", "try-output_text": "42", "try-item": '{"answer": "42"}', "try-repeats": "1"}
    assert page.post(address, {**form, "try-base_model": "qwen"}).status_code == 302
    assert LabRun.objects.get().base_model == "qwen" and GRADING in qwen.calls


def test_the_lab_asks_for_no_model_where_there_is_one(world: World) -> None:
    assert "try-base_model" not in world.client(world.alice).get(f"/rewards/{world.reward().public_id}/lab/").content.decode()
