"""Figures of long runs: what is kept in chunks equals what the events say, and no bucket hides a spike."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.core.serializers.json import DjangoJSONEncoder
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.jobs import live, series
from portal.jobs.figures import FIXED, figures
from portal.jobs.models import JobEvent, StepChunk
from portal.jobs.overview import EXACT_STEPS, TAIL_EVENTS, overview
from tests.portal.history import play
from tests.portal.world import NOW, World


def step(version: int, **changes: Any) -> dict[str, Any]:
    from datetime import UTC, datetime

    data = {"version": version, "skipped": None, "grad_norm": 0.1, "rollout": {"reward_mean": 0.5}, **changes}
    return {"seq": version, "at": datetime.fromtimestamp(1000 + version, UTC), "data": data}


def test_every_figure_of_a_step_has_its_name() -> None:
    found = figures({"rollout": {"truncated": 3, "completions": 12, "parts": {"exact": {"mean": 0.25}}}, "tokens": {"sampled": 7}})
    assert set(FIXED) <= set(found)
    assert (found["truncated"], found["tokens_sampled"], found["part:exact"], found["entropy"]) == (0.25, 7, 0.25, None)


def test_a_bucket_keeps_the_spike_in_it_and_counts_what_was_broken() -> None:
    steps = [step(version) for version in range(1, 17)]
    steps[4] = step(5, grad_norm=99.0)
    steps[5] = step(6, grad_norm=None, skipped="nonfinite")
    found = series.bucketed(series.columns(steps))
    assert (found["first"], found["versions"], found["broken"]) == ([1], [16], [1])
    assert (found["low"]["grad_norm"], found["high"]["grad_norm"]) == ([0.1], [99.0])
    assert found["mean"]["grad_norm"] == [pytest.approx((14 * 0.1 + 99) / 15)]


def test_a_figure_that_comes_late_is_unknown_before() -> None:
    both = series.joined([series.columns([step(1)]), series.columns([step(2, rollout={"reward_mean": 1, "parts": {"b": {"mean": 1.0}}})])])
    assert both["columns"]["part:b"] == [None, 1.0]


def test_chunks_say_what_the_events_say(world: World) -> None:
    job = world.job()
    events = play(job, steps=600, every_event=False)
    assert StepChunk.objects.count() == 2
    found = series.exact(job, 1, 600)
    assert found["versions"] == list(range(1, 601))
    assert found["columns"]["reward"] == [event["data"]["rollout"]["reward_mean"] for event in events]


def test_a_part_of_the_history_reads_only_its_chunks(world: World) -> None:
    job = world.job()
    play(job, steps=600, every_event=False)
    JobEvent.objects.all().delete()
    assert series.exact(job, 100, 140)["versions"] == list(range(100, 141))


def test_keeping_again_keeps_nothing_twice(world: World) -> None:
    job = world.job()
    play(job, steps=300, every_event=False)
    series.keep(job, 0)
    series.keep(job, 255)
    assert StepChunk.objects.count() == 1


def test_a_short_job_starts_from_its_events_alone(world: World) -> None:
    job = world.job()
    events = play(job, steps=10)
    found = overview(job)
    assert (found["seq"], found["base"], found["history"]) == (0, None, [])
    assert [event["seq"] for event in found["events"]] == [event["seq"] for event in events]


def test_a_long_job_starts_from_figures_and_its_newest_events(world: World) -> None:
    job = world.job()
    events = play(job, steps=EXACT_STEPS + 600, every_event=False)
    found = overview(job)
    coarse, exact = found["history"]
    old = events[:-TAIL_EVENTS]
    assert len(found["events"]) == TAIL_EVENTS
    assert exact["versions"][0] == coarse["versions"][-1] + 1
    assert exact["versions"][-1] == old[-1]["data"]["version"]
    assert found["base"]["tokens"]["sampled"] == sum(event["data"]["tokens"]["sampled"] for event in old)
    assert found["base"]["first_rewards"] == [event["data"]["rollout"]["reward_mean"] for event in events[:3]]


def test_the_start_is_served_as_it_is(world: World) -> None:
    job = world.job()
    play(job, steps=EXACT_STEPS + 300, every_event=False)
    served = world.client(world.alice).get(f"/jobs/{job.public_id}/overview/")
    told = overview(job)
    told["events"] = [{**event, "data": job.events.get(seq=event["seq"]).data} for event in told["events"]]
    assert (served["Content-Type"], served.json()) == ("application/json", json.loads(json.dumps(told, cls=DjangoJSONEncoder)))


def test_the_newest_of_some_kinds_come_in_order_however_many(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = world.job()
    kinds = ("warning", "step", "paused", "warning", "finding", "paused", "warning")
    JobEvent.objects.bulk_create(
        JobEvent(tenant_id=job.tenant_id, job=job, seq=seq, kind=kind, at=NOW) for seq, kind in enumerate(kinds, start=1)
    )
    monkeypatch.setattr(live, "MAX_EVENTS", 2)

    def seqs(**wanted: Any) -> list[int]:
        return [event.seq for event in live.newest_of(job, ("paused", "warning"), **wanted)]

    assert seqs() == [1, 3, 4, 6, 7]
    assert seqs(most=3) == [4, 6, 7]
    assert seqs(until_seq=5, most=2) == [3, 4]
    assert live.newest_of(job, ("accepted",), most=1) == []


def test_the_start_asks_the_same_number_of_queries_for_any_length(world: World) -> None:
    job = world.job()
    play(job, steps=300, every_event=False)
    with CaptureQueriesContext(connection) as short:
        overview(job)
    other = world.job()
    play(other, steps=EXACT_STEPS + 300, every_event=False)
    with CaptureQueriesContext(connection) as long:
        overview(other)
    assert len(long) <= len(short)


def test_figures_come_as_csv(world: World) -> None:
    job = world.job()
    events = play(job, steps=5)
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/figures/?format=csv")
    lines = answer.content.decode().splitlines()
    assert lines[0].startswith("version,committed_at,skipped,reward,")
    assert float(lines[5].split(",")[3]) == events[-1]["data"]["rollout"]["reward_mean"]
