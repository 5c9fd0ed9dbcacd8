"""Deleting a reward: never under a job that learns from it, and never out of the history of one that did."""

from __future__ import annotations

import pytest
from django.test import Client

from portal.jobs.models import Job
from portal.rewards.models import LabRun, Reward
from portal.rewards.probe_models import Probe
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World


def delete(api: Client, reward: Reward) -> int:
    return api.delete(f"/api/v1/rewards/{reward.public_id}/").status_code


def learnt_from(world: World) -> Reward:
    """By a job that has ended."""
    job = world.job()
    Job.objects.filter(pk=job.pk).update(state="succeeded", ended_at=NOW)
    return job.reward


def test_a_member_deletes_and_the_log_says_so(world: World) -> None:
    reward = world.reward()
    assert delete(world.api(world.vera), reward) == 403
    assert delete(world.api(world.charlie), reward) == 404
    assert delete(world.api(world.bob), reward) == 204
    assert delete(world.api(world.bob), reward) == 404
    assert not Reward._base_manager.filter(pk=reward.pk).exists()
    assert world.sums.audit.get(action="reward.deleted").target == reward.public_id


@pytest.mark.parametrize("kind", ["job", "probe"])
def test_what_is_in_use_stays(world: World, engine: FakeEngine, kind: str) -> None:
    reward = getattr(world, kind)().reward
    assert delete(world.api(world.bob), reward) == 409
    assert world.sums.rewards.filter(pk=reward.pk).exists()


def test_what_a_running_trial_uses_stays(world: World) -> None:
    reward, run = world.reward(), world.lab_run()
    LabRun.objects.filter(pk=run.pk).update(reward=reward, state=LabRun.State.RUNNING)
    assert delete(world.api(world.bob), reward) == 409


def test_a_job_that_has_ended_keeps_its_copy_and_the_name(world: World) -> None:
    reward = learnt_from(world)
    job, api = reward.jobs.get(), world.api(world.bob)
    grader = job.spec["grader"]
    assert delete(api, reward) == 204

    told = api.get(f"/api/v1/jobs/{job.public_id}/").json()
    assert (told["reward"], Job.objects.get().spec["grader"]) == (reward.public_id, grader)
    page = world.client(world.bob).get(f"/jobs/{job.public_id}/").content.decode()
    assert f"{reward.name} (deleted)" in page
    assert f"/rewards/{reward.public_id}/" not in page
    kept = Reward._base_manager.get(pk=reward.pk)
    assert kept.grader == {"type": "string_check"}


def test_what_is_deleted_is_nowhere_to_be_had(world: World) -> None:
    reward = learnt_from(world)
    browser, api = world.client(world.bob), world.api(world.bob)
    assert delete(api, reward) == 204
    assert [row["id"] for row in api.get("/api/v1/rewards/").json()["results"]] == []
    assert reward.public_id not in browser.get("/rewards/").content.decode() + browser.get("/jobs/new/").content.decode()
    order = {**world.order(), "reward": reward.public_id}
    refused = api.post("/api/v1/jobs/", order, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "reward")


def test_trials_and_probes_go_with_it(world: World) -> None:
    reward = learnt_from(world)
    probe, run = world.probe(), world.lab_run()
    Probe.objects.filter(pk=probe.pk).update(reward=reward, state=Probe.State.DONE)
    LabRun.objects.filter(pk=run.pk).update(reward=reward, state=LabRun.State.SUCCEEDED)
    assert delete(world.api(world.bob), reward) == 204
    assert not Probe.objects.filter(pk=probe.pk).exists()
    assert not LabRun.objects.filter(pk=run.pk).exists()
