"""``/v1/models``: the base models, and the latest step of each job that has one."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from portal.jobs import catalog
from portal.jobs.models import Job
from portal.openai import names
from portal.openai.base import View, seconds

MAX_JOBS = 500


class Models(View):
    noun = "models"

    def get(self, request: Request) -> Response:
        bases = [_base(info.name) for info in catalog.known_models(timezone.now())]
        jobs = self.tenant.jobs.filter(version__gte=1).order_by("-id")[:MAX_JOBS]
        return Response({"object": "list", "data": bases + [_tuned(job, job.version, self.tenant.public_id) for job in jobs]})


class Model(View):
    noun = "models"

    def get(self, request: Request, model: str) -> Response:
        """A bare name is answered with its latest step."""
        served = names.resolve(self.tenant, model, timezone.now())
        if served.job is None or served.version is None:
            return Response(_base(served.name))
        return Response(_tuned(served.job, served.version, self.tenant.public_id))


def _base(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "system", "parent": None, "name": name}


def _tuned(job: Job, version: int, owner: str) -> dict[str, Any]:
    created = seconds(job.ended_at or job.submitted_at)
    return {
        "id": names.tuned(job, version),
        "object": "model",
        "created": created,
        "owned_by": owner,
        "parent": job.base_model,
        "name": f"{job.name}@{version}",
    }
