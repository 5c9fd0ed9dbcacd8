"""A job that begins with a version of another: what the door takes, what it refuses and by which field, and what the form fills in."""

from __future__ import annotations

from typing import Any

import pytest

from portal.errors import Invalid
from portal.jobs import door
from portal.jobs.models import Job
from tests.portal.world import NOW, World


@pytest.fixture
def source(world: World) -> Job:
    """A job of Alice's that has committed five versions."""
    job = world.job(lora={"rank": 8, "alpha": 16, "target_modules": ["q_proj"]}, doctor={"pause_on": ["truncation"]})
    Job.objects.filter(pk=job.pk).update(version=5)
    job.refresh_from_db()
    return job


def order(world: World, job: Job, **changes: Any) -> dict[str, Any]:
    return {**world.order(), "lora": job.spec["lora"], "warm_start": {"job": job.public_id, "version": 3}, **changes}


def problems(world: World, raw: dict[str, Any], tenant: Any = None) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        door.check(tenant or world.sums, raw, NOW)
    return dict(refused.value.problems)


def test_a_version_of_ones_own_is_taken(world: World, source: Job) -> None:
    spec = door.check(world.sums, order(world, source), NOW).spec
    assert (spec.warm_start.job, spec.warm_start.version) == (source.public_id, 3)


def test_without_a_version_the_latest_is_meant(world: World, source: Job) -> None:
    spec = door.check(world.sums, order(world, source, warm_start={"job": source.public_id}), NOW).spec
    assert spec.warm_start.version == 5


def test_a_strangers_job_does_not_exist(world: World, source: Job) -> None:
    raw = {**world.order(world.charlie), "warm_start": {"job": source.public_id, "version": 1}}
    assert list(problems(world, raw, world.other)) == ["warm_start.job"]
    answer = world.api(world.charlie).post("/api/v1/jobs/", raw, content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "warm_start.job")
    assert not world.other.jobs.exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"warm_start": {"job": "job_aaaaaaaaaaaaaaaaaaaa"}}, "warm_start.job"),
        ({"warm_start": {"job": "job_\x00"}}, "warm_start.job"),
        ({"warm_start": {"version": 1}}, "warm_start.job"),
        ({"warm_start": "job_x"}, "warm_start"),
    ],
)
def test_what_names_no_job_is_refused(world: World, source: Job, change: dict[str, Any], field: str) -> None:
    assert field in problems(world, order(world, source, **change))


@pytest.mark.parametrize(
    ("lora", "field"),
    [
        ({"rank": 4, "alpha": 16, "target_modules": ["q_proj"]}, "lora.rank"),
        ({"rank": 8, "alpha": 8, "target_modules": ["q_proj"]}, "lora.alpha"),
        ({"rank": 8, "alpha": 16, "target_modules": ["q_proj", "v_proj"]}, "lora.target_modules"),
    ],
)
def test_an_adapter_of_another_shape_is_refused_by_its_field(world: World, source: Job, lora: dict[str, Any], field: str) -> None:
    found = problems(world, order(world, source, lora=lora))
    assert list(found) == [field] and source.name in found[field]


def test_a_version_that_is_not_committed_is_refused(world: World, source: Job) -> None:
    found = problems(world, order(world, source, warm_start={"job": source.public_id, "version": 6}))
    assert "up to 5" in found["warm_start.version"]
    Job.objects.filter(pk=source.pk).update(version=0)
    assert "no version yet" in problems(world, order(world, source))["warm_start.job"]


def test_the_form_is_filled_with_the_jobs_own_settings(world: World, source: Job) -> None:
    form = world.client(world.bob).get(f"/jobs/new/?from={source.public_id}&version=2").context["form"]
    shown = {name: form[name].value() for name in ("warm_start.job", "warm_start.version", "lora.rank", "doctor.pause_on", "dataset")}
    assert shown == {
        "warm_start.job": source.public_id,
        "warm_start.version": 2,
        "lora.rank": 8,
        "doctor.pause_on": ["truncation"],
        "dataset": source.dataset.public_id,
    }
    assert form["name"].value().endswith("from v2")


def test_a_copy_begins_as_the_job_itself_did(world: World, source: Job) -> None:
    warm = world.job(lora=source.spec["lora"], warm_start={"job": source.public_id, "version": 4})
    form = world.client(world.alice).get(f"/jobs/new/?from={warm.public_id}").context["form"]
    assert (form["warm_start.job"].value(), form["warm_start.version"].value()) == (source.public_id, 4)


def test_the_form_makes_such_a_job_and_its_page_says_where_it_comes_from(world: World, source: Job) -> None:
    typed = {
        **{"dataset": world.dataset().public_id, "reward": world.reward().public_id, "base_model": "tiny-math"},
        **{"warm_start.job": source.public_id, "lora.rank": "8", "lora.alpha": "16", "lora.target_modules": ["q_proj"]},
    }
    client = world.client(world.alice)
    answer = client.post("/jobs/new/", typed)
    made = world.sums.jobs.order_by("-id").first()
    assert answer.status_code == 302
    assert made.spec["warm_start"] == {"job": source.public_id, "version": 5}
    page = client.get(f"/jobs/{made.public_id}/").content.decode()
    assert f'href="/jobs/{source.public_id}/"' in page and "version 5" in page


def test_the_form_offers_no_strangers_job(world: World, source: Job) -> None:
    client = world.client(world.charlie)
    world.order(world.charlie)
    assert client.get(f"/jobs/new/?from={source.public_id}&version=1").status_code == 404
    typed = {"warm_start.job": source.public_id, "base_model": "tiny-math"}
    form = client.post("/jobs/new/", typed).context["form"]
    assert form.errors["warm_start.job"] and source.public_id not in dict(form.fields["warm_start.job"].choices)
