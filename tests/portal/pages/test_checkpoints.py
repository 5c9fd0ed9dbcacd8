"""Versions of a job: what is shown of them, what keeps them, what deletes them, and the bundle that says how one came to be."""

from __future__ import annotations

from typing import Any

import pytest

from portal.jobs import bundle
from portal.jobs.models import Job, JobEvent
from portal.jobs.warm_start import problems_of
from tests.portal.fake_engine import FakeEngine
from tests.portal.history import play
from tests.portal.world import NOW, World


@pytest.fixture
def job(world: World, engine: FakeEngine) -> Job:
    """Ended at version 4, in the engine as well."""
    job = world.job()
    play(job, steps=4)
    engine.jobs[job.public_id] = {"spec": job.spec}
    for version in range(1, 5):
        engine.emit(job.public_id, "step", version=version)
    engine.emit(job.public_id, "ended", state="succeeded")
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    job.refresh_from_db()
    return job


def told(job: Job, kind: str, **data: Any) -> None:
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=job.last_seq + 1, kind=kind, at=NOW, data=data)
    Job.objects.filter(pk=job.pk).update(last_seq=job.last_seq + 1)


def post(world: World, job: Job, path: str, user: Any = None, **typed: str) -> str:
    answer = world.client(user or world.alice).post(f"/jobs/{job.public_id}/checkpoints/{path}", typed, follow=True)
    return answer.content.decode()


def test_every_version_is_shown_the_newest_first(world: World, job: Job) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/checkpoints/")
    assert [line.version for line in answer.context["lines"]] == [4, 3, 2, 1]
    assert [line.latest for line in answer.context["lines"]] == [True, False, False, False]


def test_deleting_needs_the_versions_name(world: World, job: Job, engine: FakeEngine) -> None:
    page = post(world, job, "2/delete/", typed="v3")
    [form] = [part for part in page.split("<details")[1:] if " open>" in part.partition("\n")[0][:60]]
    assert "Delete version 2" in form and "Type v2 to delete it for good." in form and 'value="v3"' in form
    assert not any(method == "DELETE" for method, _ in engine.calls)
    assert "Version 2 is deleted" in post(world, job, "2/delete/", typed=" v2 ")
    assert ("DELETE", f"/jobs/{job.public_id}/adapters/2") in engine.calls


def test_deleting_all_needs_the_jobs_name_and_comes_back_open_with_what_is_wrong(world: World, job: Job) -> None:
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    form = (
        post(world, job, "delete/", typed="no")
        .partition('<details class="panel" open><summary>Delete everything')[2]
        .partition("</details>")[0]
    )
    assert f"Type {job.name} to delete it for good." in form.replace("&#x27;", "'") and "aria-invalid" in form


def test_what_the_engine_tells_of_a_deletion_is_what_the_page_shows(world: World, job: Job) -> None:
    told(job, "version_deleted", version=2)
    lines = world.client(world.alice).get(f"/jobs/{job.public_id}/checkpoints/").context["lines"]
    assert [line.version for line in lines if line.gone] == [2]


def test_a_kept_version_cannot_be_deleted_until_it_is_let_go_of(world: World, job: Job, engine: FakeEngine) -> None:
    post(world, job, "2/keep/", kept="1")
    assert "is kept" in post(world, job, "2/delete/", typed="v2")
    assert "is kept" in post(world, job, "delete/", typed=job.name)
    assert not any(method == "DELETE" for method, _ in engine.calls)
    post(world, job, "2/keep/", kept="0")
    assert "Version 2 is deleted" in post(world, job, "2/delete/", typed="v2")


def test_the_latest_goes_with_the_job_only(world: World, job: Job) -> None:
    assert "may still be needed" in post(world, job, "4/delete/", typed="v4").lower()
    assert "are deleted" in post(world, job, "delete/", typed=job.name)


def test_while_the_engine_is_down_nothing_is_deleted(world: World, job: Job, engine: FakeEngine) -> None:
    engine.down = True
    assert "nothing was deleted" in post(world, job, "2/delete/", typed="v2")


def test_viewers_neither_keep_nor_delete(world: World, job: Job) -> None:
    client = world.client(world.vera)
    paths = (f"/jobs/{job.public_id}/checkpoints/{verb}/" for verb in ("2/keep", "2/delete", "delete"))
    assert {client.post(path, {"typed": "v2", "kept": "1"}).status_code for path in paths} == {403}


def test_a_deleted_version_begins_no_job(world: World, job: Job) -> None:
    from engine.spec import WarmStart, parse_job

    told(job, "version_deleted", version=2)
    spec = parse_job(job.spec).model_copy(update={"warm_start": WarmStart(job=job.public_id, version=2)})
    assert problems_of(world.sums, spec) == [("warm_start.version", f"version 2 of {job.name} was deleted")]


def test_the_bundle_says_how_a_version_came_to_be(world: World, job: Job) -> None:
    answer = world.client(world.alice).get(f"/jobs/{job.public_id}/checkpoints/3/bundle/")
    found = answer.json()
    assert found == bundle.of(job, 3)
    assert (found["seed"], found["adapter"]["version"], len(found["steps"])) == (job.spec["seed"], 3, 3)
    assert found["dataset"]["train"]["sha256"] == job.spec["dataset"]["train"]["sha256"]
    assert found["configuration"]["sha256"] == bundle.sha256(found["configuration"]["values"])
    assert world.client(world.alice).get(f"/jobs/{job.public_id}/checkpoints/9/bundle/").status_code == 404


def test_the_same_request_has_the_same_hashes_and_another_has_others(world: World) -> None:
    one, same, other = world.job(), world.job(), world.job(seed=7)
    hashes = [bundle.of(job, 0)["configuration"]["sha256"] for job in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]


def test_lineage_leads_back_to_what_a_job_began_with(world: World, job: Job) -> None:
    child = world.job(warm_start={"job": job.public_id, "version": 2})
    grandchild = world.job()
    Job.objects.filter(pk=grandchild.pk).update(spec={**grandchild.spec, "warm_start": {"job": child.public_id, "version": 1}})
    grandchild.refresh_from_db()
    assert [(one["job"], one["version"]) for one in bundle.lineage(grandchild)] == [(child.public_id, 1), (job.public_id, 2)]
    page = world.client(world.alice).get(f"/jobs/{job.public_id}/checkpoints/")
    assert list(page.context["children"]) == [child]
