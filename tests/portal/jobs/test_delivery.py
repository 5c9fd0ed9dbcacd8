from __future__ import annotations

from datetime import timedelta

import pytest

from portal.jobs import actions, delivery
from portal.jobs.live import events_after
from portal.jobs.models import Job, JobSubmission, State
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

LATER = NOW + timedelta(minutes=1)


@pytest.fixture
def job(world: World) -> Job:
    return world.job()


def calls(engine: FakeEngine, method: str) -> list[str]:
    return [path for m, path in engine.calls if m == method]


def sent(job: Job) -> JobSubmission:
    return JobSubmission.objects.get(job=job)


def test_a_submission_reaches_the_engine_as_it_was_written_down(job: Job, engine: FakeEngine) -> None:
    delivery.deliver(job.pk, NOW)
    assert engine.jobs[job.public_id] == sent(job).body
    assert sent(job).answered_at == NOW


def test_what_was_delivered_is_not_sent_again(job: Job, engine: FakeEngine) -> None:
    delivery.deliver(job.pk, NOW)
    delivery.deliver(job.pk, LATER)
    delivery.sweep(LATER)
    assert len(calls(engine, "PUT")) == 1


def test_the_sweeper_sends_what_got_lost(job: Job, engine: FakeEngine) -> None:
    delivery.sweep(LATER)
    assert job.public_id in engine.jobs


def test_the_sweeper_leaves_fresh_work_to_the_worker(job: Job, engine: FakeEngine) -> None:
    delivery.sweep(NOW + timedelta(seconds=1))
    assert calls(engine, "PUT") == []


def test_a_lost_answer_is_made_good_by_the_same_put(job: Job, engine: FakeEngine) -> None:
    delivery.deliver(job.pk, NOW)
    JobSubmission.objects.update(answered_at=None)
    delivery.sweep(LATER)
    assert [e["kind"] for e in engine.journal] == ["accepted"]
    assert sent(job).answered_at == LATER


def test_an_engine_that_is_down_costs_nothing_but_time(job: Job, engine: FakeEngine) -> None:
    engine.down = True
    assert not delivery.deliver(job.pk, NOW)
    job.refresh_from_db()
    assert (job.state, sent(job).attempts, sent(job).answered_at) == (State.SUBMITTED, 1, None)
    engine.down = False
    delivery.sweep(LATER)
    assert job.public_id in engine.jobs


def test_the_sweeper_gives_up_at_the_first_dead_call(world: World, engine: FakeEngine) -> None:
    for _ in range(3):
        world.job()
    engine.calls.clear()
    engine.down = True
    delivery.sweep(LATER)
    assert len(engine.calls) == 1


def test_a_job_that_the_engine_refuses_fails_with_the_reason(job: Job, engine: FakeEngine) -> None:
    engine.models = [engine.models[0].model_copy(update={"max_rank": 4})]
    delivery.deliver(job.pk, NOW)
    job.refresh_from_db()
    assert (job.state, job.attribution) == (State.FAILED, "user")
    assert "lora.rank" in job.state_reason
    assert [event["kind"] for event in events_after(job, 0)] == ["ended"]
    delivery.sweep(LATER)
    assert len(calls(engine, "PUT")) == 1


def test_commands_follow_the_submission_in_order(job: Job, world: World, engine: FakeEngine) -> None:
    actions.pause_job(world.sums, world.bob, job, NOW)
    actions.cancel_job(world.sums, world.bob, job, NOW)
    delivery.deliver(job.pk, NOW)
    assert [e["kind"] for e in engine.journal] == ["accepted", "pause_requested", "stop_requested"]


def test_a_command_overtakes_no_submission(job: Job, world: World, engine: FakeEngine) -> None:
    engine.down = True
    actions.cancel_job(world.sums, world.bob, job, NOW)
    delivery.deliver(job.pk, NOW)
    engine.down = False
    delivery.sweep(LATER)
    assert [e["kind"] for e in engine.journal] == ["accepted", "stop_requested"]


def test_a_command_to_a_job_that_has_just_ended_is_answered(job: Job, world: World, engine: FakeEngine) -> None:
    delivery.deliver(job.pk, NOW)
    engine.emit(job.public_id, "ended", state="failed")
    command = actions.cancel_job(world.sums, world.bob, job, NOW)
    delivery.deliver(job.pk, NOW)
    command.refresh_from_db()
    assert (command.answered_at, command.last_error) == (NOW, "the job has ended")


def test_one_carrier_at_a_time(job: Job, engine: FakeEngine) -> None:
    JobSubmission.objects.update(leased_until=NOW + timedelta(seconds=30))
    delivery.deliver(job.pk, NOW)
    assert calls(engine, "PUT") == []


def test_a_wish_that_comes_while_another_is_sent_goes_out_too(
    job: Job, world: World, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own task found the lease taken and left."""
    submit = delivery._submit

    def slow(submission: JobSubmission, now: object) -> str:
        answer = submit(submission, now)
        monkeypatch.setattr(delivery, "_send_due", send_due)
        actions.cancel_job(world.sums, world.bob, job, NOW)
        return answer

    send_due = delivery._send_due
    first_only = lambda pk, now: delivery._send(JobSubmission.objects.select_related("job").get(job_id=pk), now, slow)  # noqa: E731
    monkeypatch.setattr(delivery, "_send_due", first_only)
    delivery.deliver(job.pk, NOW)
    assert [e["kind"] for e in engine.journal] == ["accepted", "stop_requested"]


def test_a_dead_carriers_lease_runs_out(job: Job, engine: FakeEngine) -> None:
    JobSubmission.objects.update(leased_until=NOW - timedelta(seconds=1))
    delivery.deliver(job.pk, NOW)
    assert job.public_id in engine.jobs


@pytest.mark.django_db(transaction=True)
def test_creating_a_job_sends_it_after_the_commit(world: World, engine: FakeEngine) -> None:
    job = world.job()
    assert job.public_id in engine.jobs


@pytest.mark.django_db(transaction=True)
def test_a_broker_that_is_down_does_not_lose_the_job(world: World, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no broker")

    monkeypatch.setattr("portal.jobs.tasks.deliver.apply_async", refuse)
    job = world.job()
    delivery.sweep(LATER)
    assert job.public_id in engine.jobs
