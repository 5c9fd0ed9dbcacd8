"""The list of jobs: filters in the address, what is done to many at once, and what each row says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from portal.jobs.listing import rows
from portal.jobs.models import Job, JobEvent
from tests.portal.world import NOW, World


@pytest.fixture
def jobs(world: World) -> dict[str, Job]:
    """One of each kind, by its name."""
    made = {"running": world.job(name="running"), "over": world.job(name="over"), "bobs": world.job(world.bob, name="bobs")}
    hidden = made["hidden"] = world.job(name="hidden")
    Job.objects.filter(pk=made["running"].pk).update(state="running")
    Job.objects.filter(pk=made["over"].pk).update(state="succeeded")
    Job.objects.filter(pk=hidden.pk).update(state="failed", archived_at=NOW)
    for job in made.values():
        job.refresh_from_db()
    return made


def shown(world: World, query: str) -> list[str]:
    return sorted(row.job.name for row in world.client(world.alice).get(f"/jobs/?{query}").context["rows"])


def bulk(world: World, do: str, *jobs: Job, user: Any = None) -> str:
    typed = {"do": do, "job": [job.public_id for job in jobs], "back": "show=open"}
    return world.client(user or world.alice).post("/jobs/bulk/", typed, follow=True).content.decode()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("", ["bobs", "over", "running"]),
        ("show=open", ["bobs", "running"]),
        ("show=ended", ["over"]),
        ("show=archived", ["hidden"]),
        ("q=RUNN", ["running"]),
        ("state=succeeded", ["over"]),
        ("owner=bob@example.org", ["bobs"]),
        ("model=tiny-math&state=running", ["running"]),
        ("show=nonsense&state=nonsense", ["bobs", "over", "running"]),
    ],
)
def test_the_address_says_which_jobs_are_shown(world: World, jobs: dict[str, Job], query: str, names: list[str]) -> None:
    assert shown(world, query) == names


def test_a_job_is_found_by_its_id_and_by_its_dataset(world: World, jobs: dict[str, Job]) -> None:
    job = jobs["over"]
    assert shown(world, f"q={job.public_id}") == ["over"]
    assert shown(world, f"dataset={job.dataset.public_id}") == ["over"]


def test_the_refreshing_table_keeps_the_filter(world: World, jobs: dict[str, Job]) -> None:
    html = world.client(world.alice).get("/jobs/?q=run&show=open").content.decode()
    assert 'hx-get="/jobs/?show=open&amp;q=run&amp;page=1"' in html


def test_many_are_stopped_at_once_and_those_that_cannot_be_say_so(world: World, jobs: dict[str, Job]) -> None:
    html = bulk(world, "stop", jobs["running"], jobs["bobs"], jobs["over"])
    assert "2 jobs asked to stop" in html
    assert "over: the job has already succeeded" in html
    assert jobs["running"].commands.get().kind == "cancel"


def test_what_has_ended_is_archived_and_comes_back(world: World, jobs: dict[str, Job]) -> None:
    html = bulk(world, "archive", jobs["over"], jobs["running"])
    assert "only a job that has ended can be archived" in html
    assert shown(world, "show=archived") == ["hidden", "over"]
    bulk(world, "unarchive", jobs["over"], jobs["hidden"])
    assert shown(world, "show=archived") == []


def test_a_viewer_stops_and_archives_nothing(world: World, jobs: dict[str, Job]) -> None:
    client = world.client(world.vera)
    for do in ("stop", "archive"):
        assert client.post("/jobs/bulk/", {"do": do, "job": [jobs["over"].public_id, jobs["running"].public_id]}).status_code == 403
    assert shown(world, "show=archived") == ["hidden"]


def test_a_strangers_jobs_are_not_touched(world: World, jobs: dict[str, Job]) -> None:
    html = bulk(world, "archive", jobs["over"], user=world.charlie)
    assert "Mark the jobs first" in html
    assert shown(world, "show=archived") == ["hidden"]


def test_a_waiting_job_says_its_place_and_when_it_goes_on(world: World) -> None:
    job = world.job()
    data = {"reason": "all places are taken", "position": 3, "next_seconds": 90.0}
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=1, kind="waiting", at=NOW, data=data)
    Job.objects.filter(pk=job.pk).update(state="queued", state_reason="all places are taken", last_seq=1)
    [row] = rows(Job.objects.all())
    assert (row.position, row.begins_at, row.heard_at) == (3, NOW + timedelta(seconds=90), NOW)
    html = world.client(world.alice).get("/jobs/").content.decode()
    assert "place 3 in the queue" in html
    assert "last heard" in html


def test_comparing_leads_to_an_address_that_holds_the_jobs_and_nothing_else(world: World, jobs: dict[str, Job]) -> None:
    marked = [jobs["over"].public_id, jobs["running"].public_id]
    for person in (world.alice, world.vera):
        answer = world.client(person).post("/jobs/bulk/", {"do": "compare", "job": marked, "back": "q=x"})
        assert answer.status_code == 302
        assert set(answer["Location"].partition("?")[2].split("&")) == {f"job={job}" for job in marked}
