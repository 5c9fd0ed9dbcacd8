"""/api/v1/probes: what the base model would do with a job's rows, before the job is started."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema_field, extend_schema_view
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.parameters import documented
from portal.api.views import CHANGED, MISSING, REFUSED, TenantViews
from portal.errors import Invalid
from portal.rewards import probes
from portal.rewards.probe_models import Probe
from portal.rewards.shapes import AnObject


class ProbeOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    reward = serializers.CharField(source="reward.public_id")
    dataset = serializers.CharField(source="dataset.public_id")
    base_model = serializers.SerializerMethodField()
    rows = serializers.IntegerField()
    result = AnObject(
        allow_null=True,
        help_text="pass_rate, reward, zero_signal (share of groups without signal at the job's group size, and how many of them all "
        "right and all wrong), group_sizes, lengths, prompts, tokens and seconds per step and for the job; intervals are of 95 %.",
    )

    class Meta:
        model = Probe
        fields = ("id", "reward", "dataset", "base_model", "rows", "state", "done", "total", "reason", "result", "created_at", "ended_at")

    @extend_schema_field(serializers.CharField())
    def get_base_model(self, probe: Probe) -> str:
        return probe.spec["base_model"]


def probe_request_schema() -> dict[str, Any]:
    """JSON schema of POST /probes: a job's, with the number of rows."""
    job = shapes.job_request_schema()
    rows = {"type": "integer", "minimum": 1, "maximum": probes.MAX_ROWS, "default": probes.USUAL_ROWS, "description": "Rows to try."}
    properties = {name: value for name, value in job["properties"].items() if name != "name"}
    return {**job, "properties": {**properties, "rows": rows}}


_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="The same key and body give the same probe.")
_NO_ENGINE = {**CHANGED, 503: shapes.ErrorOut}


@extend_schema_view(list=documented(ProbeOut(many=True), REFUSED))
class Probes(TenantViews):
    noun, relation = "rewards", "probes"
    serializer_class = ProbeOut
    queryset = Probe.objects.none()

    def get_queryset(self) -> Any:
        return super().get_queryset().select_related("reward", "dataset")

    @documented(ProbeOut, MISSING)
    def retrieve(self, request: Request, public_id: str) -> Response:
        """How far it is, and its forecast once it is done."""
        return Response(ProbeOut(probes.refresh(self.get_object(), timezone.now())).data)

    @documented(ProbeOut, _NO_ENGINE, 202, request={"application/json": probe_request_schema()}, parameters=[_KEY])
    def create(self, request: Request) -> Response:
        """See what the base model makes of a dataset's rows under a reward, and what a job would cost."""
        tenant, raw = tenant_of(request), request.data
        wanted = raw.get("reward") if isinstance(raw, dict) else None
        found = tenant.rewards.filter(public_id=wanted).first() if isinstance(wanted, str) and "\0" not in wanted else None
        if found is None:
            raise Invalid([("reward", "choose a reward of yours by its id")])
        asked = {name: value for name, value in raw.items() if name != "reward"}
        key = request.headers.get("Idempotency-Key")
        probe = probes.start_probe(tenant, request.user, found, asked, timezone.now(), idempotency_key=key)
        return Response(ProbeOut(probe).data, status=status.HTTP_202_ACCEPTED)

    @documented(ProbeOut, MISSING, 202, request=None)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, public_id: str) -> Response:
        """End it; one that has ended stays as it is."""
        probe = probes.cancel_probe(tenant_of(request), request.user, self.get_object(), timezone.now())
        return Response(ProbeOut(probe).data, status=status.HTTP_202_ACCEPTED)
