"""A job's checkpoints, and several jobs beside each other, over REST: the same figures and actions as the pages'."""

from __future__ import annotations

from typing import Any

from django.http import Http404
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import exceptions, serializers, status
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.idempotency import OncePerKey
from portal.api.numbers import parameter, whole
from portal.api.parameters import documented
from portal.api.views import CHANGED, MISSING
from portal.jobs import checkpoints, comparing
from portal.jobs.models import Job

MOST_CHECKPOINTS = 200
_BEFORE = parameter("before", "Only versions below this one; `next` of the answer before.")
_LIMIT = parameter("limit", least=1, most=MOST_CHECKPOINTS, default=50)
_JOB = OpenApiParameter("job", str, many=True, required=True, description=f"A job's id; up to {comparing.MOST_JOBS} of them.")
ASKED = {**CHANGED, 503: shapes.ErrorOut}


class CheckpointOut(serializers.Serializer):
    version = serializers.IntegerField()
    committed_at = serializers.DateTimeField(source="at")
    reward = serializers.FloatField(allow_null=True, help_text="Mean reward of the step that made it.")
    held_out = serializers.FloatField(allow_null=True, help_text="Mean reward on held-out rows, where it was evaluated.")
    kept = serializers.BooleanField(help_text="Cannot be deleted until it is let go.")
    deleted = serializers.BooleanField(source="gone")
    best = serializers.BooleanField(help_text="The highest held-out reward.")
    latest = serializers.BooleanField()


class CheckpointsOut(serializers.Serializer):
    checkpoints = CheckpointOut(many=True)
    next = serializers.IntegerField(allow_null=True, help_text="Ask with `before` of this number for older ones; null: there are none.")


class ConfirmIn(shapes.Closed):
    confirm = serializers.CharField(max_length=200, help_text="The job's name.")


class CurveOut(serializers.Serializer):
    id = serializers.CharField()
    name = serializers.CharField()
    x = serializers.DictField(child=serializers.ListField(child=serializers.FloatField(allow_null=True)), help_text="By axis, one a point.")
    y = serializers.DictField(child=serializers.ListField(child=serializers.FloatField(allow_null=True)), help_text="By figure.")
    evaluations = serializers.ListField(child=serializers.ListField(child=serializers.FloatField(allow_null=True)))


class DifferenceOut(serializers.Serializer):
    path = serializers.CharField()
    values = serializers.ListField(child=serializers.CharField(), help_text="Of each job, in the order of `runs`.")


class VerdictOut(serializers.Serializer):
    job = serializers.CharField()
    best = serializers.IntegerField(allow_null=True)
    comparison = shapes.ComparisonOut(allow_null=True)


class ComparedOut(serializers.Serializer):
    runs = CurveOut(many=True)
    differences = DifferenceOut(many=True)
    verdicts = VerdictOut(many=True)


class OfJob(OncePerKey, GenericAPIView):
    noun = "jobs"
    serializer_class = CheckpointOut

    def job(self, public_id: str) -> Job:
        return get_object_or_404(tenant_of(self.request).jobs.select_related("dataset", "reward", "tenant"), public_id=public_id)


class Checkpoints(OfJob):
    @documented(CheckpointsOut, MISSING, parameters=[_BEFORE, _LIMIT], operation_id="api_v1_jobs_checkpoints_list")
    def get(self, request: Request, public_id: str) -> Response:
        """Its committed versions, newest first."""
        job = self.job(public_id)
        asked = request.query_params
        last = min(job.version, whole(asked, "before", job.version + 1) - 1)
        first = max(1, last - whole(asked, "limit", 50, least=1, most=MOST_CHECKPOINTS) + 1)
        lines = checkpoints.lines(job, first, last) if last >= 1 else []
        return Response(CheckpointsOut({"checkpoints": lines, "next": first if lines and first > 1 else None}).data)

    @extend_schema(request=ConfirmIn, responses={202: None, **ASKED}, operation_id="api_v1_jobs_checkpoints_destroy_all")
    def delete(self, request: Request, public_id: str) -> Response:
        """Delete all versions, completions and evaluated rows of an ended job for good. ``confirm`` is its name."""
        job = self.job(public_id)  # what is not there is told before what is wrong with the request
        form = ConfirmIn(data=request.data)
        form.is_valid(raise_exception=True)
        checkpoints.delete_all(tenant_of(request), request.user, job, form.validated_data["confirm"])
        return Response(status=status.HTTP_202_ACCEPTED)


class OneCheckpoint(OfJob):
    @documented(CheckpointOut, MISSING)
    def get(self, request: Request, public_id: str, version: str) -> Response:
        """One committed version."""
        return Response(_line(self.job(public_id), int(version)))

    @extend_schema(responses={202: None, **ASKED})
    def delete(self, request: Request, public_id: str, version: str) -> Response:
        """Delete this version's files for good, of an ended job. It says ``deleted`` as soon as the engine has done it."""
        checkpoints.delete(tenant_of(request), request.user, self.job(public_id), int(version), f"v{int(version)}")
        return Response(status=status.HTTP_202_ACCEPTED)


class Keep(OfJob):
    """``kept``: what a POST here makes of it."""

    kept = True

    @documented(CheckpointOut, CHANGED, request=None)
    def post(self, request: Request, public_id: str, version: str) -> Response:
        """Protect this version from deletion, or (under ``release``) let it go."""
        job = self.job(public_id)
        checkpoints.keep(tenant_of(request), request.user, job, int(version), timezone.now(), kept=self.kept)
        return Response(_line(job, int(version)))


class Release(Keep):
    kept = False


class Compared(GenericAPIView):
    noun = "jobs"
    serializer_class = ComparedOut

    @documented(ComparedOut, MISSING, parameters=[_JOB, OpenApiParameter("limit", OpenApiTypes.INT, exclude=True)])
    def get(self, request: Request) -> Response:
        """Runs over steps, seconds, tokens and money, the settings that differ, and what their evaluations say."""
        wanted = list(dict.fromkeys(request.query_params.getlist("job")))
        if not 1 <= len(wanted) <= comparing.MOST_JOBS:
            raise exceptions.ValidationError({"job": [f"name 1 to {comparing.MOST_JOBS} jobs, as ?job=…&job=…"]})
        jobs = comparing.chosen(tenant_of(request), wanted)
        if missing := set(wanted) - {job.public_id for job in jobs}:
            raise Http404(f"there is no job {sorted(missing)[0][:40]}")
        runs = [{**curve, "evaluations": curve["evals"]} for curve in comparing.curves(tenant_of(request), jobs)]
        verdicts = [{**one, "job": one["job"].public_id} for one in comparing.verdicts(jobs)]
        return Response(ComparedOut({"runs": runs, "differences": comparing.differences(jobs), "verdicts": verdicts}).data)


def _line(job: Job, version: int) -> dict[str, Any]:
    if not 1 <= version <= job.version or not (lines := checkpoints.lines(job, version, version)):
        raise Http404(f"{job.public_id} has no version {version}")
    return CheckpointOut(lines[0]).data
