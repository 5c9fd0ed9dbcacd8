"""/api/v1: each view is access, action, answer. What a tenant does not own does not exist."""

from __future__ import annotations

from typing import Any, ClassVar

from django.http import Http404, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, status, viewsets
from rest_framework.decorators import action
from rest_framework.generics import GenericAPIView
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from portal import gateway
from portal.api import serializers as shapes
from portal.api.auth import granted, tenant_of
from portal.api.choices import chosen
from portal.api.idempotency import OncePerKey
from portal.api.numbers import decimal, parameter, whole, whole_of
from portal.api.parameters import documented
from portal.api.stream import EventStream, frames, right_to_listen
from portal.billing.costs import with_cost
from portal.jobs import actions as job_actions
from portal.jobs import bundle, catalog, engines, rollouts
from portal.jobs import evaluation as evaluations
from portal.jobs.downloads import adapter_response
from portal.jobs.live import MAX_EVENTS, events_after, page_after, told
from portal.jobs.models import Job
from tenants import tokens

MOST_EVALUATED_ROWS = 1000
REFUSED = {400: shapes.ErrorOut, 401: shapes.ErrorOut, 403: shapes.ErrorOut}
MISSING = {**REFUSED, 404: shapes.ErrorOut}
CHANGED = {**MISSING, 409: shapes.ErrorOut}


class TenantViews(OncePerKey, mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """List and retrieve over one relation of the caller's tenant."""

    relation: ClassVar[str]
    lookup_field = "public_id"
    lookup_value_regex = "[a-z0-9_]{1,40}"

    def get_queryset(self) -> Any:
        return getattr(tenant_of(self.request), self.relation).all()


_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="The same key and body give the same job.")
_AFTER = parameter("after", "Events with a number above this one.", default=0)
_LAST_ID = OpenApiParameter("Last-Event-ID", str, OpenApiParameter.HEADER, description="Instead of `after`, as browsers send it.")
_AGAINST = parameter("against", "Another evaluated version.", default=0)
_CHANGE = OpenApiParameter("change", str, enum=evaluations.CHANGES, description="Only rows of which this became.")
_OFFSET = parameter("offset", default=0)
_ROWS = parameter("limit", least=1, most=MOST_EVALUATED_ROWS, default=100)
_LIMIT = parameter("limit", least=1, most=MAX_EVENTS, default=MAX_EVENTS)
_ARCHIVED = OpenApiParameter("archived", bool, description="Only archived jobs, or none of them; both unless said.")
_COMPLETIONS = [
    *(parameter(name) for name in rollouts.WHOLE),
    *(OpenApiParameter(name, float) for name in ("reward_min", "reward_max")),
    OpenApiParameter("finish", str, enum=list(rollouts.ENDINGS)),
    OpenApiParameter("text", str, description="In prompts, completions and what tools said; blind to case."),
    OpenApiParameter("kept", str, enum=list(rollouts.KEPT)),
    OpenApiParameter("every", bool, description="All steps from `version` down; `next` of the answer is the version to go on with."),
    OpenApiParameter("tokens", bool, description="With token ids, log-probabilities, and `mismatch`: the trainer's minus the sampler's."),
    parameter("limit", "Groups.", least=1, most=rollouts.MOST_GROUPS, default=10),
]


@extend_schema_view(list=documented(shapes.JobOut(many=True), REFUSED, parameters=[_ARCHIVED]), retrieve=documented(shapes.JobOut, MISSING))
class Jobs(TenantViews):
    noun = relation = "jobs"
    serializer_class = shapes.JobOut
    queryset = Job.objects.none()

    def get_queryset(self) -> Any:
        found = with_cost(super().get_queryset().select_related("dataset", "reward"))
        wanted = chosen(self.request.query_params, "archived", ("true", "false")) if self.action == "list" else ""
        return found.filter(archived_at__isnull=wanted == "false") if wanted else found

    @documented(
        shapes.JobOut, {**REFUSED, 409: shapes.ErrorOut}, 201, request={"application/json": shapes.job_request_schema()}, parameters=[_KEY]
    )
    def create(self, request: Request) -> Response:
        """Start a job: a dataset, a reward and a base model, and what should differ from the usual."""
        key = request.headers.get("Idempotency-Key")
        job = job_actions.create_job(tenant_of(request), request.user, request.data, timezone.now(), idempotency_key=key)
        return Response(shapes.JobOut(job).data, status=status.HTTP_201_CREATED)

    @documented(shapes.JobOut, CHANGED, 202, request=None)
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, public_id: str) -> Response:
        """End it. What is sampled is thrown away; a training step that has begun still commits."""
        return self._command(request, job_actions.cancel_job)

    @documented(shapes.JobOut, CHANGED, 202, request=None)
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, public_id: str) -> Response:
        """Hold it once the running step has committed."""
        return self._command(request, job_actions.pause_job)

    @documented(shapes.JobOut, CHANGED, 202, request=None)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, public_id: str) -> Response:
        """Let a paused job go on."""
        return self._command(request, job_actions.resume_job)

    @documented(shapes.JobOut, CHANGED, request=None)
    @action(detail=True, methods=["post"])
    def archive(self, request: Request, public_id: str) -> Response:
        """Leave a job that has ended out of the pages' list; nothing else changes."""
        return self._archive(request, archived=True)

    @documented(shapes.JobOut, CHANGED, request=None)
    @action(detail=True, methods=["post"])
    def unarchive(self, request: Request, public_id: str) -> Response:
        """Show it in the list again."""
        return self._archive(request, archived=False)

    @documented(shapes.EventsOut, MISSING, parameters=[_AFTER, _LIMIT])
    @action(detail=True, methods=["get"], pagination_class=None)
    def events(self, request: Request, public_id: str) -> HttpResponse:
        """What has happened, numbered from 1 without a gap."""
        after = whole(request.query_params, "after", 0)
        return told(page_after(self.get_object(), after, whole(request.query_params, "limit", MAX_EVENTS, least=1, most=MAX_EVENTS)))

    @documented(
        OpenApiTypes.STR,
        {204: None, **MISSING},
        (200, "text/event-stream"),
        parameters=[_AFTER, _LAST_ID, OpenApiParameter("format", exclude=True)],
        operation_id="jobs_stream",
    )
    @action(detail=True, methods=["get"], pagination_class=None, url_path="events/stream", renderer_classes=[EventStream, JSONRenderer])
    def stream(self, request: Request, public_id: str) -> HttpResponseBase:
        """The events as server-sent events, each as it comes. 204 when the job has ended and there is no event after that number."""
        job = self.get_object()
        last = request.headers.get("Last-Event-ID")
        after = whole_of("Last-Event-ID", last) if last else whole(request.query_params, "after", 0)
        if not job.is_open and not events_after(job, after, 1):
            return HttpResponse(status=status.HTTP_204_NO_CONTENT)
        body = frames(job, after, request.user.pk, right_to_listen(request))
        headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
        return StreamingHttpResponse(body, content_type="text/event-stream", headers=headers)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        if isinstance(getattr(response, "accepted_renderer", None), EventStream):  # only refusals are rendered
            response.accepted_renderer, response.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
        return response

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY, **MISSING, 503: shapes.ErrorOut})
    @action(detail=True, methods=["get"], url_path=r"adapters/(?P<version>latest|[0-9]{1,7})")
    def adapter(self, request: Request, public_id: str, version: str) -> HttpResponse:
        """A PEFT directory as a zip archive."""
        return adapter_response(request._request, self.get_object(), version)

    @documented(shapes.EvaluationOut, MISSING)
    @action(detail=True, methods=["get"], pagination_class=None)
    def evaluation(self, request: Request, public_id: str) -> Response:
        """Did it get better: every evaluation, and the best version."""
        return Response(evaluations.summary(self.get_object()))

    @documented(OpenApiTypes.OBJECT, {**MISSING, 503: shapes.ErrorOut}, parameters=[_AGAINST, _CHANGE, _OFFSET, _ROWS])
    @action(detail=True, methods=["get"], pagination_class=None, url_path=r"evaluations/(?P<version>latest|[0-9]{1,7})")
    def evaluated_rows(self, request: Request, public_id: str, version: str) -> Response:
        """What a version made of each held-out row, beside what another (0 unless said) made of it."""
        job = self.get_object()
        change = chosen(request.query_params, "change", evaluations.CHANGES)
        numbers = {name: whole(request.query_params, name, 0) for name in ("against", "offset")}
        numbers["limit"] = whole(request.query_params, "limit", 100, least=1, most=MOST_EVALUATED_ROWS)
        try:
            return Response(evaluations.rows(job, version, change=change, **numbers))
        except gateway.EngineRefused as refused:
            raise Http404(str(refused)) from refused

    @documented(OpenApiTypes.OBJECT, {**MISSING, 503: shapes.ErrorOut}, parameters=_COMPLETIONS)
    @action(detail=True, methods=["get"], pagination_class=None)
    def rollouts(self, request: Request, public_id: str) -> Response:
        """Completions of a step, in whole groups with advantages; with `every` the newest of all steps up to `version`."""
        job, asked = self.get_object(), request.query_params
        wanted = {name: whole(request.query_params, name, 0) for name in rollouts.WHOLE if name in asked}
        wanted |= {name: decimal(asked, name) for name in ("reward_min", "reward_max") if name in asked}
        wanted |= {name: chosen(asked, name, ("true", "false")) == "true" for name in ("every", "tokens") if name in asked}
        wanted |= {"finish": chosen(asked, "finish", rollouts.ENDINGS)} if "finish" in asked else {}
        wanted |= {"text": asked["text"][:200]} if "text" in asked else {}
        wanted["limit"] = whole(asked, "limit", 10, least=1, most=rollouts.MOST_GROUPS)
        wanted["kept"] = chosen(asked, "kept", rollouts.KEPT, "all")
        try:
            return Response(engines.of(job).groups(job.public_id, **wanted))
        except gateway.EngineRefused as refused:
            raise Http404(str(refused)) from refused

    @documented(OpenApiTypes.OBJECT, MISSING)
    @action(detail=True, methods=["get"], pagination_class=None, url_path=r"bundles/(?P<version>[0-9]{1,7})")
    def bundle(self, request: Request, public_id: str, version: str) -> Response:
        """How a committed version came to be: hashes, seed, software, weights and lineage."""
        job = self.get_object()
        if not 1 <= int(version) <= job.version:
            raise Http404(f"{job.public_id} has no version {version}")
        return Response(bundle.of(job, int(version)))

    @documented(shapes.DoctorOut, MISSING)
    @action(detail=True, methods=["get"], pagination_class=None)
    def doctor(self, request: Request, public_id: str) -> Response:
        """What the doctor found in the job's history."""
        return Response(evaluations.findings(self.get_object()))

    def _archive(self, request: Request, *, archived: bool) -> Response:
        job = self.get_object()
        job_actions.archive_job(tenant_of(request), request.user, job, timezone.now(), archived=archived)
        return Response(shapes.JobOut(self.get_object()).data)

    def _command(self, request: Request, act: Any) -> Response:
        job = self.get_object()
        act(tenant_of(request), request.user, job, timezone.now())
        return Response(shapes.JobOut(job).data, status=status.HTTP_202_ACCEPTED)


class Models(GenericAPIView):
    noun = "models"

    @documented(OpenApiTypes.OBJECT, REFUSED)
    def get(self, request: Request) -> Response:
        """The base models that jobs can be started on, and their limits."""
        return Response({"models": [info.model_dump(mode="json") for info in catalog.known_models(timezone.now())]})


class Me(GenericAPIView):
    open_when_closed = True

    @documented(shapes.MeOut, REFUSED)
    def get(self, request: Request) -> Response:
        """Who the caller is, in which tenant, and what it may do."""
        tenant = tenant_of(request)
        role = get_object_or_404(tenant.memberships, user=request.user).role
        access = request.auth if isinstance(request.auth, tokens.Access) else None
        token = access and {"id": access.token.token_id, "name": access.token.name, "expires_at": access.token.expires_at}
        scopes = sorted(granted(request))
        answer = {"email": request.user.email, "tenant": {"id": tenant.public_id, "name": tenant.name}, "role": role, "scopes": scopes}
        return Response(shapes.MeOut({**answer, "token": token}).data)
