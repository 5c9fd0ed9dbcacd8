"""Checkpoints, archived jobs and comparisons over REST: what the pages show and do, for programs."""

from __future__ import annotations

from typing import Any

import pytest

from portal.jobs.models import Job
from tests.portal.fake_engine import FakeEngine
from tests.portal.history import play
from tests.portal.world import World

V1 = "/api/v1"


@pytest.fixture
def job(world: World, engine: FakeEngine) -> Job:
    """Ended at version 4, in the engine as well."""
    job = world.job(name="Sums")
    play(job, steps=4)
    engine.jobs[job.public_id] = {"spec": job.spec}
    for version in range(1, 5):
        engine.emit(job.public_id, "step", version=version)
    engine.emit(job.public_id, "ended", state="succeeded")
    Job.objects.filter(pk=job.pk).update(state="succeeded")
    job.refresh_from_db()
    return job


def ask(world: World, method: str, job: Job, path: str, body: dict[str, Any] | None = None, user: Any = None) -> Any:
    client = world.api(user or world.bob)
    more = {} if method == "get" else {"data": body or {}, "content_type": "application/json"}
    return getattr(client, method)(f"{V1}/jobs/{job.public_id}/{path}", **more)


def test_checkpoints_come_newest_first_and_page_by_page(world: World, job: Job) -> None:
    first = ask(world, "get", job, "checkpoints/?limit=3").json()
    assert [one["version"] for one in first["checkpoints"]] == [4, 3, 2]
    assert [one["latest"] for one in first["checkpoints"]] == [True, False, False]
    rest = ask(world, "get", job, f"checkpoints/?before={first['next']}").json()
    assert ([one["version"] for one in rest["checkpoints"]], rest["next"]) == ([1], None)
    step = job.events.get(kind="step", data__version=1)
    assert rest["checkpoints"][0]["reward"] == step.data["rollout"]["reward_mean"]


def test_a_job_without_a_version_has_no_checkpoint(world: World) -> None:
    job = world.job()
    assert ask(world, "get", job, "checkpoints/").json() == {"checkpoints": [], "next": None}
    assert ask(world, "get", job, "checkpoints/1/").status_code == 404


def test_what_is_kept_cannot_be_deleted_until_it_is_released(world: World, job: Job, engine: FakeEngine) -> None:
    assert ask(world, "post", job, "checkpoints/2/keep/").json()["kept"]
    assert ask(world, "delete", job, "checkpoints/2/").status_code == 409
    assert not any(method == "DELETE" for method, _ in engine.calls)
    assert not ask(world, "post", job, "checkpoints/2/release/").json()["kept"]
    assert ask(world, "delete", job, "checkpoints/2/").status_code == 202
    assert ("DELETE", f"/jobs/{job.public_id}/adapters/2") in engine.calls


def test_everything_goes_only_by_the_jobs_name(world: World, job: Job, engine: FakeEngine) -> None:
    refused = ask(world, "delete", job, "checkpoints/", {"confirm": "sums"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "confirm")
    assert not any(method == "DELETE" for method, _ in engine.calls)
    assert ask(world, "delete", job, "checkpoints/", {"confirm": "Sums"}).status_code == 202


def test_while_the_engine_is_down_nothing_is_deleted_and_it_says_so(world: World, job: Job, engine: FakeEngine) -> None:
    engine.down = True
    assert ask(world, "delete", job, "checkpoints/2/").status_code == 503


def test_a_job_is_archived_and_brought_back(world: World, job: Job) -> None:
    assert ask(world, "post", job, "archive/").json()["archived_at"]
    listed = {wanted: len(world.api(world.bob).get(f"{V1}/jobs/{wanted}").json()["results"]) for wanted in ("", "?archived=false")}
    assert listed == {"": 1, "?archived=false": 0}
    assert ask(world, "post", job, "unarchive/").json()["archived_at"] is None
    assert world.api(world.bob).get(f"{V1}/jobs/?archived=perhaps").json()["error"]["param"] == "archived"


def test_an_open_job_stays_in_sight(world: World) -> None:
    assert ask(world, "post", world.job(), "archive/").status_code == 409


def test_runs_are_compared_with_what_differs(world: World, job: Job) -> None:
    other = world.job(name="Other", seed=7)
    play(other, steps=2)
    found = world.api(world.vera).get(f"{V1}/jobs/compare/?job={job.public_id}&job={other.public_id}").json()
    assert [(run["name"], len(run["x"]["step"]), len(run["y"]["reward"])) for run in found["runs"]] == [("Sums", 4, 4), ("Other", 2, 2)]
    assert {"path": "seed", "values": [str(job.spec["seed"]), "7"]} in found["differences"]
    assert [verdict["job"] for verdict in found["verdicts"]] == [job.public_id, other.public_id]


def test_a_comparison_names_what_is_missing_and_what_is_too_much(world: World, job: Job) -> None:
    client = world.api(world.charlie)
    assert client.get(f"{V1}/jobs/compare/?job={job.public_id}").status_code == 404
    for asked in ("", "?" + "&".join(f"job=job_{n}" for n in range(9))):
        assert client.get(f"{V1}/jobs/compare/{asked}").json()["error"]["param"] == "job"


@pytest.mark.parametrize("path", ["archive/", "checkpoints/2/keep/", "checkpoints/2/release/"])
def test_reading_is_not_enough_to_change(world: World, job: Job, path: str) -> None:
    client = world.api(world.alice, scopes=("jobs:read",))
    assert client.post(f"{V1}/jobs/{job.public_id}/{path}").status_code == 403
