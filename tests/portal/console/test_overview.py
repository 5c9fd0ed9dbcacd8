from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from portal import pulse
from portal.console import overview
from portal.console.recent import Recent
from portal.console.tenants import told_apart
from portal.jobs import delivery
from portal.jobs.models import EngineCursor, Job, JobEvent
from tenants.actions import create_tenant
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def stepped(job: Job, version: int, at: datetime) -> JobEvent:
    """A committed step of two seconds of rollout and one of training, ``at`` its commit."""
    end = at.timestamp()
    spans = [{"phase": "rollout", "start": end - 3, "end": end - 1}, {"phase": "train", "start": end - 1, "end": end}]
    data = {"version": version, "spans": spans, "seconds": {"env": 0.5}, "tokens": {"prefill": 10, "sampled": 30, "trained": 99}}
    return JobEvent(tenant_id=job.tenant_id, job=job, seq=version, kind="step", at=at, data=data)


def looked(world: World, source: Recent | None = None, at: datetime = LATER, zoom: int = 900) -> dict[str, Any]:
    return overview.live(at, zoom, source or Recent())


def test_the_timeline_and_figures_come_from_committed_steps(world: World) -> None:
    job = world.job()
    JobEvent.objects.bulk_create([stepped(job, 1, LATER - timedelta(seconds=100)), stepped(job, 2, LATER - timedelta(seconds=90))])
    seen = looked(world)
    assert seen["gantt"][job.public_id]["train"] == [[799.0, 800.0], [809.0, 810.0]]
    assert (seen["tpts"]["p50"], seen["ttfs"]["p50"]) == (10.0, (LATER - NOW).total_seconds() - 100)
    assert seen["busy"]["train"] == round(2 / 900, 4)
    assert (seen["jobs"], seen["tenants"]) == ({job.public_id: job.name}, {world.sums.public_id: "Sums"})
    assert seen["fairness"][0]["tokens"] == 80


def test_what_is_older_than_the_window_is_not_looked_at(world: World) -> None:
    job = world.job()
    stepped(job, 1, LATER - timedelta(minutes=16)).save()
    assert looked(world)["steps"] == 0


def test_each_look_reads_only_what_is_new(world: World, django_assert_num_queries: Any) -> None:
    job, source = world.job(), Recent()
    stepped(job, 1, LATER - timedelta(seconds=9)).save()
    assert len(source.steps(LATER)) == 1
    with django_assert_num_queries(1):  # nothing came: only the newest key is asked for
        assert len(source.steps(LATER)) == 1
    stepped(job, 2, LATER - timedelta(seconds=1)).save()
    assert [step.version for step in source.steps(LATER)] == [1, 2]
    assert source.steps(LATER + timedelta(hours=1)) == []


def test_work_under_way_is_drawn_to_now(world: World, engine: FakeEngine) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    engine.emit(job.public_id, "rollout_started", version=0, attempt=1)
    engine.emit(job.public_id, "novelty")
    seen = looked(world)
    [[start, end]] = seen["gantt"][job.public_id]["rollout"]
    assert end == 900 and start < 900
    assert seen["kv"]["reserved"] == {world.sums.public_id: seen["engine"]["open"][0]["kv_bytes"]}


def test_what_the_cache_holds_is_divided_as_the_sampler_counts_it(world: World, engine: FakeEngine) -> None:
    engine.overrides = {"kv": {"budget_bytes": 1000}, "sampler": {"kv_used": 0.5, "kv_tokens": {world.sums.public_id: 60, "": 40}}}
    assert looked(world)["kv"]["used_by"] == {world.sums.public_id: 300, "": 200}
    engine.overrides["sampler"] = {"kv_used": 0.5}  # an engine that does not say it
    assert (looked(world)["kv"]["used"], looked(world)["kv"]["used_by"]) == (500, {})


def test_who_waits_is_named_with_the_reason(world: World, engine: FakeEngine) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    [entry] = looked(world)["engine"]["next"]
    assert (entry["job"], entry["why_not"]) == (job.public_id, "waits for a free adapter slot")


def test_without_the_engine_the_database_is_shown_and_the_reason_said(world: World, engine: FakeEngine) -> None:
    job = world.job()
    stepped(job, 1, LATER - timedelta(seconds=9)).save()
    engine.down = True
    seen = looked(world)
    assert "cannot be reached" in seen["engine"]["away"]
    assert (seen["steps"], seen["kv"]["budget"], seen["lag"]["behind"]) == (1, None, None)


def test_an_answer_that_comes_late_leaves_the_last_one_on_the_screen_for_a_while(world: World, engine: FakeEngine) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    engine.emit(job.public_id, "rollout_started", version=0, attempt=1)
    engine.emit(job.public_id, "novelty")
    before = looked(world)
    engine.slow = 2
    seen = looked(world, at=LATER + timedelta(seconds=5))
    assert (seen["engine"]["open"], seen["engine"]["away"], seen["engine"]["late_seconds"]) == (before["engine"]["open"], "", 5.0)
    [[start, end]] = seen["gantt"][job.public_id]["rollout"]
    [[started, _]] = before["gantt"][job.public_id]["rollout"]
    assert (start, end) == (started - 5, 900)
    assert "did not answer in time" in looked(world, at=LATER + overview.KEPT_FOR)["engine"]["away"]
    assert looked(world, at=LATER + overview.KEPT_FOR)["engine"]["late_seconds"] == 0.0


def test_what_an_engine_said_that_is_gone_is_not_kept(world: World, engine: FakeEngine) -> None:
    assert looked(world)["engine"]["away"] == ""
    engine.down = True
    assert "cannot be reached" in looked(world)["engine"]["away"]


def test_lag_is_what_the_journal_has_and_the_database_has_not(world: World, engine: FakeEngine) -> None:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    EngineCursor.objects.create(engine=engine.engine, current=True, offset=0, updated_at=LATER - timedelta(seconds=30))
    assert looked(world)["lag"] == {"behind": 1, "seconds": 30.0, "moved_seconds": 30.0}
    EngineCursor.objects.update(offset=1)
    assert looked(world)["lag"]["seconds"] == 0.0


def test_what_waits_to_be_sent_has_an_age(world: World) -> None:
    world.job()
    assert looked(world)["due"]["submission_seconds"] == 3600


def test_a_process_that_was_not_heard_for_a_minute_is_down(world: World) -> None:
    pulse.beat("worker", LATER - timedelta(seconds=61))
    pulse.beat("ingester", LATER - timedelta(seconds=5), lag_seconds=0.2)
    pulses = looked(world)["pulses"]
    assert (pulses["worker"]["alive"], pulses["ingester"]["alive"], pulses["ingester"]["lag_seconds"]) == (False, True, 0.2)


@pytest.mark.parametrize("zoom", overview.ZOOMS)
def test_the_page_of_32_jobs_asks_few_questions(world: World, engine: FakeEngine, zoom: int, django_assert_max_num_queries: Any) -> None:
    first = world.job()
    jobs = [
        Job(tenant=world.sums, name=f"job {n}", dataset=first.dataset, reward=first.reward, spec=first.spec, submitted_at=NOW)
        for n in range(31)
    ]
    jobs = [first, *Job.objects.bulk_create(jobs)]
    for job in jobs:
        engine.jobs[job.public_id] = first.submission.body
        engine.emit(job.public_id, "rollout_started", version=0, attempt=1)
    rows = [stepped(job, n + 1, LATER - timedelta(seconds=900 - 9 * n)) for n in range(99) for job in jobs]
    JobEvent.objects.bulk_create(rows)
    source = Recent()
    source.steps(LATER)
    with django_assert_max_num_queries(14):
        seen = looked(world, source, zoom=zoom)
    assert len(seen["gantt"]) == 32


def test_organisations_of_one_name_are_told_apart(world: World) -> None:
    twin = create_tenant(world.charlie, "Sums")
    assert told_apart([world.sums.public_id, twin.public_id, world.other.public_id]) == {
        world.sums.public_id: f"Sums ({world.sums.public_id[-6:]})",
        twin.public_id: f"Sums ({twin.public_id[-6:]})",
        world.other.public_id: "Other",
    }
    assert told_apart([twin.public_id])[twin.public_id] != "Sums", "also where its namesake is not shown"
