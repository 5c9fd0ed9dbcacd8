"""What an organisation's rules let go of: of ended jobs only, never what is kept, best, latest or begun with, once, and written down."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from portal.billing.models import Entry
from portal.errors import Invalid
from portal.jobs import checkpoints, retention, tasks
from portal.jobs.models import Job, JobEvent, Retention
from portal.jobs.retention import Rules
from tenants.access import Forbidden
from tests.portal.fake_engine import FakeEngine
from tests.portal.history import play
from tests.portal.world import NOW, World

DAY = timedelta(days=1)


def ended(world: World, engine: FakeEngine, *, days_ago: float = 100, steps: int = 6, **changes: Any) -> Job:
    """A job that has ended so long ago, here and in the engine."""
    job = world.job(**changes)
    play(job, steps=steps)
    engine.jobs[job.public_id] = {"spec": job.spec}
    for version in range(1, steps + 1):
        engine.emit(job.public_id, "step", version=version)
    engine.emit(job.public_id, "ended", state="succeeded")
    Job.objects.filter(pk=job.pk).update(state="succeeded", ended_at=NOW - days_ago * DAY)
    job.refresh_from_db()
    return job


def told(job: Job, kind: str, **data: Any) -> None:
    Job.objects.filter(pk=job.pk).update(last_seq=job.last_seq + 1)
    job.refresh_from_db()
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=job.last_seq, kind=kind, at=NOW, data=data)


def heard(engine: FakeEngine) -> None:
    """What the ingester would bring of deletions."""
    for event in engine.journal:
        if event["kind"] in ("completions_deleted", "version_deleted"):
            told(Job.objects.get(public_id=event["job"]), event["kind"], **event["data"])


def asked(engine: FakeEngine) -> list[str]:
    return [path for method, path in engine.calls if method == "DELETE"]


def found(world: World, rules: Rules) -> list[tuple[str, bool, tuple[int, ...]]]:
    return [(one.job.name, one.completions, one.versions) for one in retention.due(world.sums, rules, NOW)]


def test_everything_is_kept_unless_somebody_says_otherwise(world: World, engine: FakeEngine) -> None:
    ended(world, engine)
    assert retention.rules(world.sums) == Rules()
    assert found(world, Rules()) == []
    tasks.retain()
    assert asked(engine) == []


def test_only_what_ended_long_enough_ago_is_due(world: World, engine: FakeEngine) -> None:
    ended(world, engine, name="old", days_ago=31)
    ended(world, engine, name="new", days_ago=29)
    still = ended(world, engine, name="open")
    Job.objects.filter(pk=still.pk).update(state="running")  # whatever its columns say
    assert found(world, Rules(completions_days=30)) == [("old", True, ())]
    assert found(world, Rules(versions_days=30)) == [("old", False, (1, 2, 3, 4, 5))]
    assert found(world, Rules(completions_days=10, versions_days=30)) == [("old", True, (1, 2, 3, 4, 5)), ("new", True, ())]


def test_the_latest_the_best_kept_ones_and_those_begun_with_stay(world: World, engine: FakeEngine) -> None:
    job = ended(world, engine, name="old")
    told(job, "eval", version=2, reward_mean=0.9)
    told(job, "eval", version=4, reward_mean=0.5)
    checkpoints.keep(world.sums, world.alice, job, 3, NOW, kept=True)
    child = world.job()
    Job.objects.filter(pk=child.pk).update(spec={**child.spec, "warm_start": {"job": job.public_id, "version": 5}})
    assert found(world, Rules(versions_days=30)) == [("old", False, (1, 4))]


def test_looking_deletes_nothing(world: World, engine: FakeEngine) -> None:
    ended(world, engine, name="old")
    page = world.client(world.alice).post("/settings/retention/", {"look": "1", "completions_days": "30", "versions_days": "30"})
    assert "completions of 1 job" in page.content.decode() and "5 checkpoints" in page.content.decode()
    assert (asked(engine), retention.rules(world.sums)) == ([], Rules())


def test_what_is_due_goes_once_and_is_written_down(world: World, engine: FakeEngine) -> None:
    job, others = ended(world, engine, name="old"), ended(world, engine, user=world.charlie, name="theirs")
    retention.change(world.sums, world.alice, Rules(completions_days=30, versions_days=30), NOW)
    entries = list(Entry.objects.values())
    retention.sweep(NOW)
    name = f"/jobs/{job.public_id}"
    assert asked(engine) == [f"{name}/completions", *(f"{name}/adapters/{version}" for version in range(1, 6))]
    heard(engine)
    retention.sweep(NOW)
    assert len(asked(engine)) == 6, "what is gone is not asked for again"
    (entry,) = world.sums.audit.filter(action="retention.applied")
    assert (entry.target, entry.actor, entry.details) == (job.public_id, None, {"completions": True, "versions": 5})
    assert list(Entry.objects.values()) == entries
    assert others.public_id not in str(engine.calls)


def test_a_round_is_bounded_and_the_next_goes_on(world: World, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    ended(world, engine, name="old")
    retention.change(world.sums, world.alice, Rules(versions_days=30), NOW)
    monkeypatch.setattr(retention, "VERSIONS_A_ROUND", 3)
    retention.sweep(NOW)
    assert len(asked(engine)) == 3
    heard(engine)
    retention.sweep(NOW)
    assert len(asked(engine)) == 5


def test_an_engine_that_is_away_is_waited_for(world: World, engine: FakeEngine) -> None:
    ended(world, engine, name="old")
    retention.change(world.sums, world.alice, Rules(completions_days=30), NOW)
    engine.down = True
    retention.sweep(NOW)
    assert not world.sums.audit.filter(action="retention.applied").exists()
    engine.down = False
    retention.sweep(NOW)
    assert world.sums.audit.filter(action="retention.applied").count() == 1


def test_a_job_that_the_engine_does_not_know_holds_nobody_up(world: World, engine: FakeEngine) -> None:
    unknown = ended(world, engine, name="unknown")
    del engine.jobs[unknown.public_id]
    ended(world, engine, name="old")
    retention.change(world.sums, world.alice, Rules(completions_days=30), NOW)
    assert [one.job.name for one in retention.apply(world.sums, NOW)] == ["old"]


def test_a_job_whose_all_was_deleted_has_nothing_left(world: World, engine: FakeEngine) -> None:
    job = ended(world, engine)
    told(job, "deleted")
    assert found(world, Rules(completions_days=1, versions_days=1)) == []


def test_an_organisation_that_is_being_deleted_is_left_to_that(world: World, engine: FakeEngine) -> None:
    ended(world, engine)
    retention.change(world.sums, world.alice, Rules(completions_days=30), NOW)
    type(world.sums).objects.filter(pk=world.sums.pk).update(deleted_at=NOW)
    retention.sweep(NOW)
    assert asked(engine) == []


def test_admins_change_it_on_the_page_and_the_log_says_so(world: World) -> None:
    client = world.client(world.alice)
    assert client.post("/settings/retention/", {"completions_days": "30", "versions_days": ""}).status_code == 302
    assert retention.rules(world.sums) == Rules(completions_days=30)
    assert world.sums.audit.get(action="retention.changed").details == {"completions_days": "30 days", "versions_days": "for ever"}
    assert client.post("/settings/retention/", {"completions_days": "0"}).status_code == 422
    assert retention.rules(world.sums) == Rules(completions_days=30)


@pytest.mark.parametrize("days", [0, -1, retention.MOST_DAYS + 1])
def test_no_other_number_of_days_is_taken(world: World, days: int) -> None:
    with pytest.raises(Invalid, match="versions_days"):
        retention.change(world.sums, world.alice, Rules(versions_days=days), NOW)


def test_members_only_look(world: World) -> None:
    with pytest.raises(Forbidden):
        retention.change(world.sums, world.bob, Rules(versions_days=1), NOW)
    assert "Owners and admins change this" in world.client(world.bob).get("/settings/retention/").content.decode()
    assert not Retention.objects.exists()


def test_pages_say_that_completions_were_deleted(world: World, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ended(world, engine)
    told(job, "completions_deleted")
    del engine.jobs[job.public_id]  # it answers 404 for what is gone
    client = world.client(world.alice)
    assert "The completions were deleted" in client.get(f"/jobs/{job.public_id}/rollouts/").content.decode()
    assert "The evaluated rows were deleted" in client.get(f"/jobs/{job.public_id}/evaluation/latest/").content.decode()


def test_looking_costs_as_many_queries_for_five_jobs_as_for_one(world: World, engine: FakeEngine) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            found(world, Rules(completions_days=1, versions_days=1))
        return len(asked)

    ended(world, engine)
    before = queries()
    for _ in range(4):
        ended(world, engine)
    assert queries() == before


def test_programs_look_before_they_change_a_rule(world: World, engine: FakeEngine) -> None:
    job = ended(world, engine, name="old")
    api, address = world.api(world.alice), "/api/v1/organisation/retention/"
    assert api.get(address).json() == {
        "completions_days": None,
        "versions_days": None,
        "due": {"completions": 0, "versions": 0, "jobs": []},
    }
    looked = api.patch(address, {"completions_days": 30, "versions_days": 30, "dry_run": True}, content_type="application/json").json()
    assert (looked["completions_days"], looked["due"]["completions"], looked["due"]["versions"]) == (30, 1, 5)
    assert [(one["id"], one["versions"]) for one in looked["due"]["jobs"]] == [(job.public_id, [1, 2, 3, 4, 5])]
    assert (retention.rules(world.sums), world.sums.audit.filter(action="retention.changed").exists()) == (Rules(), False)


def test_programs_change_one_rule_and_the_other_stays(world: World) -> None:
    api, address = world.api(world.alice), "/api/v1/organisation/retention/"
    api.patch(address, {"versions_days": 90}, content_type="application/json")
    assert api.patch(address, {"completions_days": 30}, content_type="application/json").json()["versions_days"] == 90
    assert api.patch(address, {"versions_days": None}, content_type="application/json").json()["versions_days"] is None
    assert retention.rules(world.sums) == Rules(completions_days=30)
    assert api.patch(address, {}, content_type="application/json").status_code == 200
    assert world.sums.audit.filter(action="retention.changed").count() == 3, "what changes nothing is not written down"


@pytest.mark.parametrize(("name", "value"), [("versions_days", 0), ("completions_days", retention.MOST_DAYS + 1), ("days", 3)])
def test_programs_are_told_which_rule_is_none(world: World, name: str, value: int) -> None:
    refused = world.api(world.alice).patch("/api/v1/organisation/retention/", {name: value}, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
