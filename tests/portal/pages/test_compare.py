"""Runs beside each other: whose they are, what they are drawn over, and that only what differs is listed."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.billing.models import Entry
from portal.jobs import comparing
from portal.jobs.models import Job
from tests.portal.history import play
from tests.portal.world import NOW, World


@pytest.fixture
def pair(world: World) -> list[Job]:
    jobs = [world.job(name="slow"), world.job(name="fast", train={"learning_rate": 0.002})]
    for job in jobs:
        play(job, steps=6)
    return jobs


def address(jobs: list[Job], more: str = "") -> str:
    return f"/jobs/compare/?{'&'.join(f'job={job.public_id}' for job in jobs)}{more}"


def test_curves_come_over_steps_time_tokens_and_money(world: World, pair: list[Job]) -> None:
    events = list(pair[0].events.filter(kind="step").order_by("seq"))
    for step, cost in ((2, 100_000), (5, 300_000)):
        Entry.objects.create(
            **{"tenant": pair[0].tenant, "at": NOW, "source_type": "job", "source": pair[0].public_id, "step": step, "kind": "sampled"},
            **{"quantity": 1_000_000, "price_micros": cost, "amount_micros": -cost},
        )
    [curve, _] = comparing.curves(world.sums, pair)
    assert curve["x"]["step"] == [1, 2, 3, 4, 5, 6]
    assert curve["x"]["seconds"] == [(event.at - pair[0].submitted_at).total_seconds() for event in events]
    assert curve["x"]["tokens"][-1] == sum(sum(event.data["tokens"].values()) for event in events)
    assert curve["x"]["money"] == [0, 0.1, 0.1, 0.1, 0.4, 0.4]
    assert curve["y"]["reward"] == [event.data["rollout"]["reward_mean"] for event in events]


def test_only_what_differs_is_listed(world: World, pair: list[Job]) -> None:
    found = {row.path: row.values for row in comparing.differences(pair)}
    assert found["train.learning_rate"] == ["0.001", "0.002"]
    assert not any(path.startswith("rollout.") for path in found)


def test_a_run_keeps_its_colour_and_equal_colours_get_another_dash(world: World, pair: list[Job]) -> None:
    alone, together = comparing.styled(pair[:1]), comparing.styled([*pair, pair[0]])
    assert alone[0]["colour"] == together[0]["colour"] == together[2]["colour"]
    assert together[0]["dash"] != together[2]["dash"]


def test_strangers_runs_do_not_exist_here(world: World, pair: list[Job]) -> None:
    answer = world.client(world.charlie).get(address(pair))
    assert answer.context["jobs"] == []
    assert "slow" not in answer.content.decode()


def test_at_most_eight_and_each_once(world: World, pair: list[Job]) -> None:
    ids = [job.public_id for job in pair] * 9
    assert comparing.chosen(world.sums, ids) == pair
    assert len(comparing.chosen(world.sums, [f"job_{n}" for n in range(20)])) == 0


def test_the_page_shows_both_and_asks_no_more_for_longer_runs(world: World, pair: list[Job]) -> None:
    client = world.client(world.alice)
    with CaptureQueriesContext(connection) as short:
        answer = client.get(address(pair, "&x=tokens"))
    assert (answer.status_code, answer.context["axis"]) == (200, "tokens")
    longer = [world.job(), world.job()]
    for job in longer:
        play(job, steps=300, every_event=False)
    with CaptureQueriesContext(connection) as long:
        client.get(address(longer))
    assert len(long) <= len(short)
