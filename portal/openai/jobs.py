"""``/v1/fine_tuning/jobs``: the same actions as the pages', in OpenAI's shape."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import ProtectedError
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from portal import numbers
from portal.api.numbers import whole
from portal.errors import Invalid
from portal.jobs import actions
from portal.jobs.models import Job
from portal.openai import job_request, job_shapes
from portal.openai.base import MAX_PAGE, View, listed, page
from portal.openai.job_request import JobRequest
from portal.openai.models import JobMetadata
from portal.openai.names import owned_job
from portal.rewards.actions import create_reward
from portal.rewards.models import Reward
from tenants.models import Tenant, User

_COMMANDS = {"cancel": actions.cancel_job, "pause": actions.pause_job, "resume": actions.resume_job}


class FineTuningJobs(View):
    noun = "jobs"

    def get(self, request: Request) -> Response:
        jobs = job_shapes.for_showing(self.tenant.jobs.order_by("-id"))
        for name, value in request.query_params.items():
            if name.startswith("metadata[") and name.endswith("]"):
                jobs = jobs.filter(metadata__in=JobMetadata.objects.filter(tenant=self.tenant, key=name[9:-1][:65], value=value[:513]))
            elif name == "metadata" and value == "null":
                jobs = jobs.filter(metadata=None)
            elif name not in ("after", "limit"):
                raise Invalid([(name[:100], "is not known; list by after, limit and metadata[key]")])
        return Response(page(request, jobs, job_shapes.job, default=20))

    def post(self, request: Request) -> Response:
        key = request.headers.get("Idempotency-Key")
        job = create(self.tenant, request.user, request.data, timezone.now(), idempotency_key=key)
        return Response(shown(self.tenant, job.public_id))


class FineTuningJob(View):
    noun = "jobs"

    def get(self, request: Request, public_id: str) -> Response:
        return Response(shown(self.tenant, public_id))


class Command(View):
    noun = "jobs"
    kind = ""

    def post(self, request: Request, public_id: str) -> Response:
        job = owned_job(self.tenant, public_id)
        _COMMANDS[self.kind](self.tenant, request.user, job, timezone.now())
        return Response(shown(self.tenant, public_id))


class Events(View):
    noun = "jobs"

    def get(self, request: Request, public_id: str) -> Response:
        """The newest first."""
        job = owned_job(self.tenant, public_id)
        rows = job.events.select_related("job").order_by("-seq")
        if after := request.query_params.get("after"):
            rows = rows.filter(seq__lt=_numbered(after, f"ftevent-{job.public_id}-"))
        limit = whole(request.query_params, "limit", 20, least=1, most=MAX_PAGE)
        found = list(rows[: limit + 1])
        return Response(listed([job_shapes.event(row) for row in found[:limit]], has_more=len(found) > limit))


class Checkpoints(View):
    noun = "jobs"

    def get(self, request: Request, public_id: str) -> Response:
        """The newest first: each committed version is one."""
        job = owned_job(self.tenant, public_id)
        rows = job.events.select_related("job").filter(kind="step").order_by("-seq")
        if after := request.query_params.get("after"):
            rows = rows.filter(data__version__lt=_numbered(after, f"ftckpt-{job.public_id}-"))
        limit = whole(request.query_params, "limit", 10, least=1, most=MAX_PAGE)
        found = list(rows[: limit + 1])
        held_out = {
            data["version"]: data["reward_mean"]
            for data in job.events.filter(kind="eval").values_list("data", flat=True)
            if data.get("reward_mean") is not None
        }
        return Response(listed([job_shapes.checkpoint(row, held_out) for row in found[:limit]], has_more=len(found) > limit))


def shown(tenant: Tenant, public_id: str) -> dict[str, Any]:
    job = job_shapes.for_showing(tenant.jobs).filter(public_id=public_id).first()
    if job is None:
        raise Http404
    return job_shapes.job(job)


def create(tenant: Tenant, user: User, body: Any, now: datetime, *, idempotency_key: str | None = None) -> Job:
    """A job of OpenAI's ``body``. Raises as ``jobs.actions.create_job`` does, with OpenAI's names of the fields; then nothing stays."""
    asked = job_request.parse(tenant, user, body)
    reward, is_new = _reward(tenant, user, asked)
    raw = {**asked.raw, "reward": reward.public_id}
    try:
        job = actions.create_job(tenant, user, raw, now, idempotency_key=idempotency_key)
    except Invalid as refused:
        if is_new:
            with suppress(ProtectedError):  # another job has taken it meanwhile
                reward.delete()
        refused.problems = job_request.said_as_openai(refused.problems)
        raise
    with transaction.atomic():
        pairs = [JobMetadata(tenant=tenant, job=job, key=key, value=value) for key, value in asked.metadata.items()]
        JobMetadata.objects.bulk_create(pairs, ignore_conflicts=True)
    return job


def _reward(tenant: Tenant, user: User, asked: JobRequest) -> tuple[Reward, bool]:
    """One of the same grader that is there already, or a new one: retries and series of jobs make no heap of equal rewards."""
    if standing := tenant.rewards.filter(grader=asked.grader).order_by("id").first():
        return standing, False
    name = str(asked.name or asked.grader.get("name") or asked.grader["type"])
    return create_reward(tenant, user, name[:100], asked.grader), True


def _numbered(text: str, prefix: str) -> int:
    found = numbers.whole(text.removeprefix(prefix)) if text.startswith(prefix) else None
    if found is None:
        raise Http404
    return found
