"""Secrets that an earlier release stored in plain text are sealed by the migration, wherever they are."""

from __future__ import annotations

from importlib import import_module

from django.apps import apps
from django.conf import settings

from engine.sealed import Sealer
from portal.jobs.models import Job, JobEvent, JobSubmission
from portal.rewards.models import Reward
from tests.portal.rewards.examples import SECRET, grader
from tests.portal.world import NOW, World

seal_all = import_module("portal.rewards.migrations.0004_seal_secrets").seal_all


def plain(world: World, *, answered: bool) -> Job:
    """A job as an earlier release left it."""
    job, both = world.job(), grader("multi", graders={"exact": grader("http")})
    Reward.objects.filter(pk=job.reward_id).update(grader=both)
    Job.objects.filter(pk=job.pk).update(spec={**job.spec, "grader": both})
    submission = JobSubmission.objects.get(job=job)
    body = {**submission.body, "spec": {**submission.body["spec"], "grader": both}}
    JobSubmission.objects.filter(job=job).update(body=body, answered_at=NOW if answered else None)
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=999, kind="accepted", at=NOW, data={"submission": body, "kv_bytes": 1})
    JobEvent.objects.create(tenant=job.tenant, job=job, seq=1000, kind="novelty", at=NOW, data={"text": "stays"})
    return job


def stored() -> str:
    rows = [
        Reward.objects.values("grader"),
        Job.objects.values("spec"),
        JobSubmission.objects.values("body"),
        JobEvent.objects.values("data"),
    ]
    return str([list(found) for found in rows])


def test_nothing_is_left_in_plain_text_and_all_of_it_still_opens(world: World) -> None:
    job = plain(world, answered=True)
    before = stored().count(SECRET)
    seal_all(apps, None)
    seal_all(apps, None)  # a migration that was cut off runs again
    opened = Sealer(bearer=settings.ENGINE_SECRET)
    for told in (
        Reward.objects.get(pk=job.reward_id).grader,
        Job.objects.get().spec["grader"],
        JobSubmission.objects.get().body["spec"]["grader"],
    ):
        assert opened.open(told["graders"]["exact"]["signing_secret"], tenant=world.sums.public_id) == SECRET

    assert (before, stored().count(SECRET)) == (4, 0)
    assert JobEvent.objects.get(seq=999).data["kv_bytes"] == 1
    assert JobEvent.objects.get(seq=1000).data == {"text": "stays"}


def test_what_is_still_to_be_sent_stays_word_for_word(world: World) -> None:
    job = plain(world, answered=False)
    body = JobSubmission.objects.get(job=job).body
    seal_all(apps, None)

    assert JobSubmission.objects.get(job=job).body == body
