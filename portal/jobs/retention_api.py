"""How long an organisation keeps what its ended jobs left, over REST: the same rules, look and audit entry as the page's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from django.utils import timezone
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.parameters import documented
from portal.api.views import REFUSED
from portal.jobs import retention
from portal.jobs.retention import Rules
from tenants.models import Role, Tenant

SHOWN_JOBS = 50
_AFTER = "Days after a job has ended; null: for ever."


class RetentionIn(shapes.Closed):
    """What is left out stays as it is."""

    completions_days = serializers.IntegerField(
        allow_null=True, required=False, min_value=1, max_value=retention.MOST_DAYS, help_text=f"Of what jobs sampled. {_AFTER}"
    )
    versions_days = serializers.IntegerField(
        allow_null=True, required=False, min_value=1, max_value=retention.MOST_DAYS, help_text=f"Of checkpoints. {_AFTER}"
    )
    dry_run = serializers.BooleanField(default=False, help_text="Only look at what these rules would delete now; nothing is saved.")


class DueJobOut(serializers.Serializer):
    id = serializers.CharField(source="job.public_id")
    name = serializers.CharField(source="job.name")
    ended_at = serializers.DateTimeField(source="job.ended_at")
    completions = serializers.BooleanField()
    versions = serializers.ListField(child=serializers.IntegerField())


class DueOut(serializers.Serializer):
    completions = serializers.IntegerField(help_text="Of how many jobs.")
    versions = serializers.IntegerField(help_text="How many checkpoints.")
    jobs = DueJobOut(many=True, help_text=f"The oldest {SHOWN_JOBS}.")


class RetentionOut(serializers.Serializer):
    completions_days = serializers.IntegerField(allow_null=True)
    versions_days = serializers.IntegerField(allow_null=True)
    due = DueOut(help_text="What these rules let go of now, which goes within the hour, for good.")


class Retention(GenericAPIView):
    noun = "organisation"
    roles: ClassVar = {"PATCH": Role.ADMIN}
    serializer_class = RetentionOut

    @documented(RetentionOut, REFUSED)
    def get(self, request: Request) -> Response:
        """How long completions and checkpoints of ended jobs are kept, and what is due."""
        return Response(_shown(tenant_of(request), retention.rules(tenant_of(request))))

    @documented(RetentionOut, REFUSED, request=RetentionIn)
    def patch(self, request: Request) -> Response:
        """Set one rule or both, or with `dry_run` see first what they would delete. The latest, best and kept checkpoints always stay."""
        tenant, given = tenant_of(request), shapes.valid(RetentionIn, request)
        only_look, saved = given.pop("dry_run"), retention.rules(tenant)
        wanted = replace(saved, **given)
        if not only_look and wanted != saved:
            retention.change(tenant, request.user, wanted, timezone.now())
        return Response(_shown(tenant, wanted))


def _shown(tenant: Tenant, rules: Rules) -> dict[str, Any]:
    found = retention.preview(tenant, rules, timezone.now())
    due = {**found, "jobs": found["due"][:SHOWN_JOBS]}
    return RetentionOut({"completions_days": rules.completions_days, "versions_days": rules.versions_days, "due": due}).data
