"""Notifications, webhooks and what became of each delivery over REST: the same rows and actions as the page's."""

from __future__ import annotations

from typing import Any, ClassVar

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.decorators import action
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.idempotency import OncePerKey
from portal.api.parameters import documented
from portal.api.views import MISSING, REFUSED, TenantViews
from portal.notices import carrying, webhooks, wishes
from portal.notices.models import Delivery, Notice, Webhook
from tenants.models import Role


class NoticeOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    type = serializers.CharField(source="kind", help_text="job.succeeded, job.failed, job.cancelled or job.paused.")
    job = serializers.CharField(source="job.public_id")
    job_name = serializers.CharField(source="job.name")
    read = serializers.SerializerMethodField(help_text="Whether the caller has seen it, here or on the page.")

    class Meta:
        model = Notice
        fields = ("id", "type", "job", "job_name", "reason", "at", "read")

    def get_read(self, notice: Notice) -> bool:
        return notice.pk <= self.context["read_id"]


class ReadIn(shapes.Closed):
    up_to = serializers.CharField(max_length=40, required=False, help_text="A notification's id (ntc_…); the newest unless said.")


class UnreadOut(serializers.Serializer):
    unread = serializers.IntegerField(help_text="At most 100 are counted.")


class WebhookOut(serializers.ModelSerializer):
    id = serializers.CharField(source="public_id")
    created_by = serializers.EmailField(source="created_by.email", allow_null=True, default=None)

    class Meta:
        model = Webhook
        fields = ("id", "url", "created_by", "created_at")


class NewWebhookOut(WebhookOut):
    secret = serializers.CharField(help_text="What its messages are signed with. Shown this once.")

    class Meta(WebhookOut.Meta):
        fields = (*WebhookOut.Meta.fields, "secret")


class WebhookIn(shapes.Closed):
    url = serializers.CharField(max_length=500, help_text="A public https address.")


class DeliveryOut(serializers.ModelSerializer):
    notification = serializers.CharField(source="notice.public_id")
    type = serializers.CharField(source="notice.kind")
    webhook = serializers.CharField(source="webhook.public_id", allow_null=True, default=None)
    state = serializers.SerializerMethodField()

    class Meta:
        model = Delivery
        fields = (
            *("id", "notification", "type", "webhook", "email", "state"),
            *("attempts", "status", "error", "delivered_at", "next_try_at"),
        )

    @extend_schema_field(serializers.ChoiceField(choices=("delivered", "waiting", "given_up")))
    def get_state(self, delivery: Delivery) -> str:
        if delivery.delivered_at:
            return "delivered"
        return "waiting" if delivery.next_try_at else "given_up"


@extend_schema_view(list=documented(NoticeOut(many=True), REFUSED))
class Notifications(mixins.ListModelMixin, viewsets.GenericViewSet):
    """Jobs that ended or paused, newest first."""

    noun = "jobs"
    serializer_class = NoticeOut
    queryset = Notice.objects.none()

    def get_queryset(self) -> Any:
        return tenant_of(self.request).notices.select_related("job")

    def get_serializer_context(self) -> dict[str, Any]:
        tenant = tenant_of(self.request)
        read_id = wishes.setting_of(tenant, self.request.user).read_id if tenant else 0
        return {**super().get_serializer_context(), "read_id": read_id}


class Read(OncePerKey, GenericAPIView):
    """Only the caller's own mark, so that viewers and read-only tokens set theirs."""

    noun = "jobs"
    reads_only = True
    serializer_class = ReadIn

    @documented(UnreadOut, MISSING, request=ReadIn)
    def post(self, request: Request) -> Response:
        """Mark all notifications up to one as read by the caller."""
        tenant = tenant_of(request)
        form = ReadIn(data=request.data)
        form.is_valid(raise_exception=True)
        wanted = form.validated_data.get("up_to")
        newest = get_object_or_404(tenant.notices, public_id=wanted) if wanted else tenant.notices.first()
        if newest is not None:
            wishes.read_up_to(tenant, request.user, newest.pk)
        return Response({"unread": wishes.unread(tenant, request.user)})


@extend_schema_view(list=documented(WebhookOut(many=True), REFUSED), retrieve=documented(WebhookOut, MISSING))
class Webhooks(TenantViews):
    noun, relation = "organisation", "webhooks"
    roles: ClassVar = {"POST": Role.ADMIN, "DELETE": Role.ADMIN}
    serializer_class = WebhookOut
    queryset = Webhook.objects.none()

    def get_queryset(self) -> Any:
        return super().get_queryset().select_related("created_by")

    @documented(NewWebhookOut, REFUSED, 201, request=WebhookIn)
    def create(self, request: Request) -> Response:
        """Tell this address of every job that ends or pauses. For admins."""
        form = WebhookIn(data=request.data)
        form.is_valid(raise_exception=True)
        made, secret = webhooks.create_webhook(tenant_of(request), request.user, form.validated_data["url"])
        answer = {**WebhookOut(made).data, "secret": secret}
        return Response(answer, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})

    @documented(None, MISSING, 204)
    def destroy(self, request: Request, public_id: str) -> Response:
        """Tell it nothing any more; its deliveries leave the log. For admins."""
        webhooks.remove_webhook(tenant_of(request), request.user, self.get_object())
        return Response(status=status.HTTP_204_NO_CONTENT)


@extend_schema_view(list=documented(DeliveryOut(many=True), REFUSED))
class Deliveries(OncePerKey, mixins.ListModelMixin, viewsets.GenericViewSet):
    """The log: each notification on its way to each address, newest first."""

    noun = "organisation"
    roles: ClassVar = {"POST": Role.ADMIN}
    serializer_class = DeliveryOut
    queryset = Delivery.objects.none()
    lookup_field, lookup_url_kwarg = "pk", "delivery"
    lookup_value_regex = "[0-9]{1,15}"
    http_method_names: ClassVar[list[str]] = ["get", "post", "head", "options"]

    def get_queryset(self) -> Any:
        return tenant_of(self.request).notice_deliveries.select_related("notice", "webhook")

    @extend_schema(responses={202: DeliveryOut, **MISSING}, request=None)
    @action(detail=True, methods=["post"])
    def again(self, request: Request, delivery: str) -> Response:
        """Send it to its webhook once more. For admins."""
        found = get_object_or_404(self.get_queryset().exclude(webhook=None), pk=delivery)
        carrying.again(found, timezone.now())
        found.refresh_from_db()
        return Response(DeliveryOut(found).data, status=status.HTTP_202_ACCEPTED)
