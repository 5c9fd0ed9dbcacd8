"""Seals what earlier releases stored in plain text: signing secrets of rewards, of their jobs and of what was sent for these, and takes
them out of the events that the engine told. What has not been answered yet is sent again as it was: the engine compares it word by word."""

from __future__ import annotations

from typing import Any

from django.db import migrations

from engine.grader_spec import shown
from portal.rewards.secrets import sealed


def seal_all(apps: Any, schema_editor: Any) -> None:
    for reward in apps.get_model("rewards", "Reward").objects.select_related("tenant").iterator():
        _store(reward, "grader", _sealed(reward.tenant, reward.grader))
    for job in apps.get_model("jobs", "Job").objects.select_related("tenant").iterator():
        _store(job, "spec", {**job.spec, "grader": _sealed(job.tenant, job.spec["grader"])})
    sent = apps.get_model("jobs", "JobSubmission").objects.exclude(answered_at=None)
    for submission in sent.select_related("tenant").iterator():
        spec = submission.body["spec"]
        spec = {**spec, "grader": _sealed(submission.tenant, spec["grader"])}
        _store(submission, "body", {**submission.body, "spec": spec})
    for event in apps.get_model("jobs", "JobEvent").objects.filter(kind="accepted").iterator():
        _store(event, "data", _told(event.data))


def _store(row: Any, field: str, value: Any) -> None:
    if value != getattr(row, field):
        type(row).objects.filter(pk=row.pk).update(**{field: value})


def _sealed(tenant: Any, grader: dict[str, Any]) -> dict[str, Any]:
    return sealed(tenant.public_id, grader, [])


def _told(data: dict[str, Any]) -> dict[str, Any]:
    submission = data.get("submission")
    if not isinstance(submission, dict):
        return data
    spec = submission["spec"]
    return {**data, "submission": {**submission, "spec": {**spec, "grader": shown(spec["grader"])}}}


class Migration(migrations.Migration):
    dependencies = [("rewards", "0003_probe"), ("jobs", "0001_initial")]
    # Backwards the sealed texts stay: an earlier release takes them for secrets, and its jobs sign with them.
    operations = [migrations.RunPython(seal_all, migrations.RunPython.noop)]
