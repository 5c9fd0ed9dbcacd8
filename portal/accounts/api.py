"""Organisation, members, invitations, tokens and the audit log over REST: the same actions as the pages'."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import mixins, permissions, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from portal.accounts import deletion, presence
from portal.accounts.audit_views import NOUNS, entries
from portal.accounts.respond import export_response
from portal.accounts.views import join_url
from portal.api import serializers as shapes
from portal.api.auth import granted, tenant_of
from portal.api.choices import chosen
from portal.api.idempotency import OncePerKey
from portal.api.limits import PerAddress
from portal.api.parameters import OnlyDocumented, documented
from portal.api.views import MISSING, REFUSED, TenantViews
from tenants import actions, members, tokens
from tenants.access import Forbidden, require
from tenants.models import ApiToken, AuditEntry, Invitation, Membership, Role, Tenant

GONE = {**MISSING, 400: shapes.ErrorOut}


class OrganisationOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")

    class Meta:
        model = Tenant
        fields = ("id", "name", "require_mfa", "created_at")


class OrganisationIn(shapes.Closed):
    name = serializers.CharField(max_length=100, required=False)
    require_mfa = serializers.BooleanField(required=False)


class DeletionIn(shapes.Closed):
    confirm = serializers.CharField(help_text="The organisation's name.")


class MemberOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    email = serializers.EmailField(source="user.email")
    role = serializers.CharField()

    class Meta:
        model = Membership
        fields = ("id", "email", "role", "created_at")


class RoleIn(shapes.Closed):
    role = serializers.ChoiceField(choices=Role.choices)


class InvitationOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    role = serializers.CharField()
    invited_by = serializers.EmailField(source="invited_by.email", allow_null=True, default=None)

    class Meta:
        model = Invitation
        fields = ("id", "email", "role", "invited_by", "created_at", "expires_at", "accepted_at", "withdrawn_at")


class InvitationIn(shapes.Closed):
    email = serializers.EmailField(max_length=254)
    role = serializers.ChoiceField(choices=Role.choices, default=Role.MEMBER)


class ApiTokenOut(serializers.ModelSerializer):
    id = serializers.CharField(source="token_id")
    person = serializers.EmailField(source="user.email")
    scopes = serializers.ListField(child=serializers.CharField())
    addresses = serializers.ListField(child=serializers.CharField())
    successor = serializers.CharField(help_text="The id of the token that took its place, or empty.")

    class Meta:
        model = ApiToken
        fields = (
            *("id", "name", "person", "scopes", "addresses", "successor"),
            *("created_at", "expires_at", "last_used_at", "revoked_at"),
        )


class NewTokenOut(ApiTokenOut):
    token = serializers.CharField(help_text="Shown this once.")

    class Meta(ApiTokenOut.Meta):
        fields = (*ApiTokenOut.Meta.fields, "token")


class TokenIn(shapes.Closed):
    name = serializers.CharField(max_length=100)
    scopes = serializers.ListField(child=serializers.ChoiceField(choices=tokens.SCOPES), required=False, allow_empty=False)
    days = serializers.IntegerField(min_value=1, max_value=tokens.LONGEST_LIFE.days, default=tokens.DEFAULT_LIFE.days)
    addresses = serializers.ListField(
        child=serializers.CharField(max_length=60),
        required=False,
        max_length=tokens.MAX_ADDRESSES,
        help_text="Networks that it may be used from.",
    )


class RotationIn(shapes.Closed):
    overlap_hours = serializers.IntegerField(
        min_value=0, max_value=tokens.LONGEST_OVERLAP.days * 24, default=24, help_text="How long the old one goes on."
    )


class LeakIn(serializers.Serializer):
    """Open to fields that it does not know: no report shall fail by what else it says."""

    token = serializers.CharField(max_length=200)
    url = serializers.CharField(max_length=500, required=False, allow_blank=True, help_text="Where it was seen.")


class AuditOut(serializers.ModelSerializer):
    actor = serializers.CharField(source="actor_email", help_text="An e-mail address; empty: the service itself.")
    operator = serializers.CharField(source="operator_email", help_text="The operator who acted as this person, or empty.")
    token = serializers.CharField(source="token_id")
    details = serializers.DictField()

    class Meta:
        model = AuditEntry
        fields = ("at", "action", "actor", "operator", "target", "target_name", "token", "address", "request_id", "details")


class Organisation(OncePerKey, GenericAPIView):
    noun = "organisation"
    roles: ClassVar = {"PATCH": Role.ADMIN, "DELETE": Role.OWNER}
    serializer_class = OrganisationOut

    @documented(OrganisationOut, REFUSED)
    def get(self, request: Request) -> Response:
        """The organisation that the token belongs to."""
        return Response(OrganisationOut(tenant_of(request)).data)

    @documented(OrganisationOut, REFUSED, request=OrganisationIn)
    def patch(self, request: Request) -> Response:
        """Another name, or the rule that members need a second factor (for owners)."""
        given = shapes.valid(OrganisationIn, request)
        return Response(OrganisationOut(members.change_tenant(tenant_of(request), request.user, **given)).data)

    @extend_schema(request=DeletionIn, responses={202: None, **REFUSED})
    def delete(self, request: Request) -> Response:
        """Delete it with all that it has. For owners; ``confirm`` is its name."""
        tenant, confirm = tenant_of(request), shapes.valid(DeletionIn, request)["confirm"]
        deletion.check_meant(tenant, request.user, confirm)
        presence.prove_by_api(request)
        deletion.delete_tenant(tenant, request.user, confirm, timezone.now())
        return Response(status=status.HTTP_202_ACCEPTED)


class Export(GenericAPIView):
    noun = "organisation"
    roles: ClassVar = {"GET": Role.ADMIN}

    @extend_schema(responses={(200, "application/zip"): OpenApiTypes.BINARY, **REFUSED})
    def get(self, request: Request) -> HttpResponse:
        """All that the organisation has, as a zip archive. For owners and admins."""
        return export_response(request._request, tenant_of(request), request.user)


@extend_schema_view(list=documented(MemberOut(many=True), REFUSED), retrieve=documented(MemberOut, MISSING))
class Members(TenantViews):
    noun, relation = "organisation", "memberships"
    roles: ClassVar = {"PATCH": Role.ADMIN}
    serializer_class = MemberOut
    queryset = Membership.objects.none()

    def get_queryset(self) -> Any:
        return super().get_queryset().select_related("user")

    @documented(MemberOut, GONE, request=RoleIn)
    def partial_update(self, request: Request, public_id: str) -> Response:
        """Another role. For admins; only owners touch owners."""
        member = self.get_object()
        return Response(
            MemberOut(members.change_role(tenant_of(request), request.user, member, shapes.valid(RoleIn, request)["role"])).data
        )

    @documented(None, GONE, 204)
    def destroy(self, request: Request, public_id: str) -> Response:
        """Remove somebody, or leave."""
        members.remove(tenant_of(request), request.user, self.get_object(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)

    @documented(MemberOut, GONE, request=None)
    @action(detail=True, methods=["post"])
    def owner(self, request: Request, public_id: str) -> Response:
        """Hand the ownership over to this member and become an admin."""
        member = self.get_object()
        require(
            tenant_of(request), request.user, Role.OWNER
        )  # here, so that a repeated request gets its answer: it made an admin of the caller
        presence.prove_by_api(request)
        members.transfer(tenant_of(request), request.user, member)
        member.refresh_from_db()
        return Response(MemberOut(member).data)


@extend_schema_view(list=documented(InvitationOut(many=True), REFUSED), retrieve=documented(InvitationOut, MISSING))
class Invitations(TenantViews):
    noun, relation = "organisation", "invitations"
    roles: ClassVar = {"POST": Role.ADMIN, "DELETE": Role.ADMIN}
    serializer_class = InvitationOut
    queryset = Invitation.objects.none()

    @documented(InvitationOut, REFUSED, 201, request=InvitationIn)
    def create(self, request: Request) -> Response:
        """Send an invitation by mail; one to the same address replaces the last."""
        url_of = join_url(request._request, [])
        invited = members.invite(tenant_of(request), request.user, **shapes.valid(InvitationIn, request), now=timezone.now(), url_of=url_of)
        return Response(InvitationOut(invited).data, status=status.HTTP_201_CREATED)

    @documented(None, MISSING, 204)
    def destroy(self, request: Request, public_id: str) -> Response:
        """Withdraw it."""
        members.withdraw(tenant_of(request), request.user, self.get_object(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(list=documented(ApiTokenOut(many=True), REFUSED), retrieve=documented(ApiTokenOut, MISSING))
class Tokens(TenantViews):
    noun, relation = "tokens", "api_tokens"
    serializer_class = ApiTokenOut
    queryset = ApiToken.objects.none()
    lookup_field = "token_id"

    def get_queryset(self) -> Any:
        return super().get_queryset().select_related("user")

    @documented(NewTokenOut, REFUSED, 201, request=TokenIn)
    def create(self, request: Request) -> Response:
        """A new token, which acts for the caller. A token makes none that may more than itself."""
        given = shapes.valid(TokenIn, request)
        scopes = tuple(given.get("scopes") or sorted(granted(request) & frozenset(tokens.DEFAULT_SCOPES)))
        if beyond := sorted(set(scopes) - granted(request)):
            raise Forbidden(f"You cannot give what you do not have: {', '.join(beyond)}.")
        addresses = tokens.networks(" ".join(given.get("addresses", ())))
        how = {"scopes": scopes, "life": timedelta(days=given["days"]), "addresses": addresses}
        token, text = actions.create_token(tenant_of(request), request.user, given["name"], timezone.now(), **how)
        return _shown_once(token, text)

    @documented(NewTokenOut, {**GONE, 409: shapes.ErrorOut}, 201, request=RotationIn)
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, token_id: str) -> Response:
        """A new token in the place of this one, which goes on for the overlap."""
        old = self.get_object()
        actions.check_may_rotate(tenant_of(request), request.user, old)
        if beyond := sorted(set(old.scopes) - granted(request)):
            raise Forbidden(f"You cannot give what you do not have: {', '.join(beyond)}.")
        overlap = timedelta(hours=shapes.valid(RotationIn, request)["overlap_hours"])
        return _shown_once(*actions.rotate_token(tenant_of(request), request.user, old, timezone.now(), overlap=overlap))

    @documented(None, MISSING, 204)
    def destroy(self, request: Request, token_id: str) -> Response:
        """Revoke it, at once and for good."""
        actions.revoke_token(tenant_of(request), request.user, self.get_object(), timezone.now())
        return Response(status=status.HTTP_204_NO_CONTENT)


class LeakReport(GenericAPIView):
    """Anybody's: whoever holds a token may end it."""

    authentication_classes: ClassVar[list] = []
    permission_classes = (permissions.AllowAny, OnlyDocumented)
    throttle_classes = (PerAddress,)
    serializer_class = LeakIn

    @extend_schema(request=LeakIn, responses={202: None, 400: shapes.ErrorOut, 429: shapes.ErrorOut}, auth=[])
    def post(self, request: Request) -> Response:
        """Report a token that was found where it should not be: it is revoked at once. The answer is always the same."""
        given = shapes.valid(LeakIn, request)
        actions.report_leak(given["token"].strip(), given.get("url", ""), timezone.now())
        return Response(status=status.HTTP_202_ACCEPTED)


_NOUN = OpenApiParameter("noun", str, enum=NOUNS, description="Only acts on this.")
_WHO = OpenApiParameter("who", str, description="Only of people whose e-mail address contains this.")


class Audit(mixins.ListModelMixin, viewsets.GenericViewSet):
    noun = "audit"
    roles: ClassVar = {"GET": Role.ADMIN}
    serializer_class = AuditOut
    queryset = AuditEntry.objects.none()

    def get_queryset(self) -> Any:
        asked = self.request.query_params
        noun = chosen(asked, "noun", NOUNS)
        return entries(tenant_of(self.request), noun, asked.get("who", ""))

    @documented(AuditOut(many=True), REFUSED, parameters=[_NOUN, _WHO])
    def list(self, request: Request) -> Response:
        """Who did what, newest first. For owners and admins."""
        return super().list(request)


def _shown_once(token: ApiToken, text: str) -> Response:
    answer = {**ApiTokenOut(token).data, "token": text}
    return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})
