"""/api/v1/rewards and /api/v1/reward-runs: rewards, and their trials in the Lab."""

from __future__ import annotations

import re
from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema_view
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from engine.grader_spec import shown
from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.idempotency import OncePerKey
from portal.api.numbers import decimal, parameter, whole
from portal.api.parameters import documented
from portal.api.views import CHANGED, MISSING, REFUSED, TenantViews
from portal.errors import Invalid
from portal.rewards import lab, removal
from portal.rewards.actions import checked_grader, create_reward
from portal.rewards.models import LabRun, Reward
from portal.rewards.shapes import CasesOut, GraderIn, RunOut, ValidOut
from portal.rewards.trial import Trial, parse_trial, request_schema

MAX_CASES_A_PAGE = 200
UNAVAILABLE = {**CHANGED, 503: shapes.ErrorOut}


_RUN = {"application/json": request_schema(with_grader=False)}
_RUN_UNSAVED = {"application/json": request_schema(with_grader=True)}
_FROM = OpenApiParameter("accept_from", float, description="The reward from which a text of the corpus counts as accepted.")
_AFTER = parameter("after", "Cases with a number above this one.")
_LIMIT = parameter("limit", least=1, most=MAX_CASES_A_PAGE, default=100)


@extend_schema_view(list=documented(shapes.RewardOut(many=True), REFUSED), retrieve=documented(shapes.RewardOut, MISSING))
class Rewards(TenantViews):
    noun = relation = "rewards"
    serializer_class = shapes.RewardOut
    queryset = Reward.objects.none()

    @documented(shapes.RewardOut, REFUSED, 201, request=shapes.RewardIn)
    def create(self, request: Request) -> Response:
        """Store one. It never changes: a job keeps what it was started with."""
        form = shapes.RewardIn(data=request.data)
        form.is_valid(raise_exception=True)
        reward = create_reward(tenant_of(request), request.user, form.validated_data["name"], form.validated_data["grader"])
        return Response(shapes.RewardOut(reward).data, status=status.HTTP_201_CREATED)

    @documented(None, CHANGED, 204)
    def destroy(self, request: Request, public_id: str) -> Response:
        """Delete it, with its trials and probes. One that a job is learning from stays; jobs that have ended keep their copy of it."""
        removal.delete_reward(tenant_of(request), request.user, self.get_object(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @documented(ValidOut, REFUSED, request=GraderIn)
    @action(detail=False, methods=["post"])
    def validate(self, request: Request) -> Response:
        """Whether a grader could be stored, and if not, every bad field with its message and, in a source, its line."""
        form = GraderIn(data=request.data)
        form.is_valid(raise_exception=True)
        problems: list[tuple[str, str]] = []
        parsed = checked_grader(form.validated_data["grader"], problems)
        listed = [{"field": field, "message": message, "line": _line_in(message)} for field, message in problems]
        return Response({"valid": not listed, "grader": None if listed else shown(parsed), "problems": listed})

    @documented(RunOut, {**REFUSED, 409: shapes.ErrorOut}, 201, request=_RUN_UNSAVED, operation_id="v1_rewards_run_unsaved")
    @action(detail=False, methods=["post"], url_path="run", url_name="run-unsaved")
    def run_unsaved(self, request: Request) -> Response:
        """Try a grader that is not stored. A small trial is done when the answer comes; look at others with GET /reward-runs/{id}."""
        body = request.data if isinstance(request.data, dict) else {}
        grader = body.get("grader")
        if not isinstance(grader, dict):
            raise Invalid([("grader", "must be an object with a type")])
        trial = parse_trial({name: value for name, value in body.items() if name != "grader"})
        return self._begun(request, grader, trial)

    @documented(RunOut, CHANGED, 201, request=_RUN)
    @action(detail=True, methods=["post"])
    def run(self, request: Request, public_id: str) -> Response:
        """Try a stored reward. A small trial is done when the answer comes; look at others with GET /reward-runs/{id}."""
        reward = self.get_object()
        return self._begun(request, reward.grader, parse_trial(request.data), reward=reward)

    def _begun(self, request: Request, grader: dict[str, Any], trial: Trial, **of: Any) -> Response:
        run = lab.begin_run(tenant_of(request), request.user, grader, trial, timezone.now(), **of)
        return Response(RunOut(run).data, status=status.HTTP_201_CREATED)


@extend_schema_view(retrieve=documented(RunOut, MISSING, parameters=[_FROM]))
class RewardRuns(OncePerKey, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    noun = "rewards"
    serializer_class = RunOut
    queryset = LabRun.objects.none()
    lookup_field = "public_id"
    lookup_value_regex = "[a-z0-9_]{1,40}"

    def get_queryset(self) -> Any:
        return tenant_of(self.request).lab_runs.select_related("reward", "tenant")

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "accept_from": decimal(self.request.query_params, "accept_from")}

    def get_object(self) -> LabRun:
        run = super().get_object()
        lab.wake(run, timezone.now())
        return run

    @documented(CasesOut, MISSING, parameters=[_AFTER, _LIMIT])
    @action(detail=True, methods=["get"], pagination_class=None)
    def cases(self, request: Request, public_id: str) -> Response:
        """The cases in their order, those that are not graded yet without outcomes."""
        run = self.get_object()
        after = whole(request.query_params, "after", -1)
        limit = whole(request.query_params, "limit", 100, least=1, most=MAX_CASES_A_PAGE)
        found = list(run.cases.filter(number__gt=after).order_by("number")[: limit + 1])
        rows = [{"number": case.number, "case": case.case, "outcomes": case.result and case.result["outcomes"]} for case in found[:limit]]
        return Response({"cases": rows, "next": rows[-1]["number"] if len(found) > limit else None})

    @documented(RunOut, MISSING, 202, request=None)
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, public_id: str) -> Response:
        """What is graded by then stays. Stopping what has ended is no error."""
        run = self.get_object()
        lab.stop_run(tenant_of(request), request.user, run, timezone.now())
        return Response(RunOut(run).data, status=status.HTTP_202_ACCEPTED)


def _line_in(message: str) -> int | None:
    found = re.match(r"line (\d+):", message)
    return int(found[1]) if found else None
