"""/api/v1/billing, /usage and /prices: what the pages Usage and Billing show and do, for programs. All money is in micro-units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from django.conf import settings
from django.urls import reverse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema_view
from rest_framework import mixins, serializers, status, viewsets
from rest_framework.generics import GenericAPIView
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from portal.api import serializers as shapes
from portal.api.auth import tenant_of
from portal.api.choices import chosen
from portal.api.idempotency import OncePerKey
from portal.api.parameters import OnlyDocumented, documented
from portal.api.views import CHANGED, REFUSED
from portal.billing import ledger, limits, prices, quotas, standing, stripe_client, subscriptions, topups, usage
from portal.billing.forecast import forecast
from portal.billing.models import Entry, Invoice, Plan
from portal.billing.money import MOST
from portal.errors import Invalid
from tenants.models import Role

_BY = ("day", "source", "model", "kind")
_MONTH = OpenApiParameter("month", str, description="As in 2026-11 (UTC); this month unless given.")
_GROUP = OpenApiParameter("by", str, enum=_BY, description="What the rows are sums by; day unless given. A source is mostly a job.")


class QuotaOut(serializers.Serializer):
    quota = serializers.CharField()
    used = serializers.IntegerField()
    limit = serializers.IntegerField(allow_null=True)


class HoldOut(serializers.Serializer):
    source_type = serializers.CharField(help_text="job, chat, probe or trial.")
    source = serializers.CharField(help_text="Its id.")
    job = serializers.CharField(source="job.public_id", allow_null=True)
    micros = serializers.IntegerField()
    budget_micros = serializers.IntegerField(allow_null=True)
    budget_tokens = serializers.IntegerField(allow_null=True)
    stop_code = serializers.CharField(help_text="credit, budget or quota where billing asked the job to pause; else empty.")
    stop_reason = serializers.CharField()


class StandingOut(serializers.Serializer):
    stage = serializers.ChoiceField(["fine", "grace", "no_new_jobs", "stopped"])
    since = serializers.DateTimeField(allow_null=True, help_text="When a payment first failed.")
    no_new_jobs_at = serializers.DateTimeField(allow_null=True)
    stops_at = serializers.DateTimeField(allow_null=True, help_text="From then on running jobs pause after the step that runs.")
    reason = serializers.CharField()


class ForecastOut(serializers.Serializer):
    spent_micros = serializers.IntegerField(source="spent")
    a_day_micros = serializers.IntegerField(source="a_day", help_text="The pace of the last days that are over.")
    month_end_micros = serializers.IntegerField(source="month_end")


class BillingOut(serializers.Serializer):
    currency = serializers.CharField()
    payments = serializers.BooleanField(help_text="Whether credit can be bought; else operators grant it.")
    balance_micros = serializers.IntegerField()
    credit_line_micros = serializers.IntegerField(help_text="How far below 0 the balance may go.")
    held_micros = serializers.IntegerField()
    available_micros = serializers.IntegerField()
    plan = serializers.CharField()
    quotas = QuotaOut(many=True)
    holds = HoldOut(many=True)
    standing = StandingOut()
    forecast = ForecastOut()
    plans = serializers.ListField(child=serializers.CharField(), help_text="Keys of the plans that are for sale.")
    alert_micros = serializers.IntegerField(allow_null=True, help_text="A month that costs so much is told by mail.")
    stop_micros = serializers.IntegerField(allow_null=True, help_text="Before a month costs more, jobs pause.")


class InvoiceOut(serializers.ModelSerializer):
    """Amounts are in the currency's smallest unit. A line with ``overage`` has whole micro-units as its quantity."""

    id = serializers.CharField(source="invoice_id")

    class Meta:
        model = Invoice
        fields = (
            "id",
            "number",
            "status",
            "currency",
            "total_minor",
            "paid_minor",
            "lines",
            "page_url",
            "pdf_url",
            "created_at",
            "failed_at",
        )


class UsedOut(serializers.Serializer):
    name = serializers.CharField()
    tokens = serializers.IntegerField()
    cost_micros = serializers.IntegerField(source="micros")
    kinds = serializers.SerializerMethodField()

    def get_kinds(self, used: usage.Used) -> dict[str, dict[str, int]]:
        return {kind: {"quantity": quantity, "cost_micros": micros} for kind, (quantity, micros) in used.by_kind.items()}


class UsageOut(serializers.Serializer):
    month = serializers.CharField()
    by = serializers.CharField()
    rows = UsedOut(many=True)
    total = UsedOut()


class EntryOut(serializers.ModelSerializer):
    class Meta:
        model = Entry
        fields = (
            *("id", "at", "source_type", "source", "step", "attempt", "kind", "model", "quantity", "price_micros", "amount_micros"),
            *("reason", "reverses", "told_hour", "overage_micros"),
        )


class PriceOut(serializers.Serializer):
    kind = serializers.CharField()
    model = serializers.CharField(help_text="Empty: every model without a price of its own.")
    micros_per_million = serializers.IntegerField(source="micros", allow_null=True)


class PricesOut(serializers.Serializer):
    currency = serializers.CharField()
    prices = PriceOut(many=True)


class CheckoutIn(shapes.Closed):
    micros = serializers.IntegerField(help_text="Credit to buy, in micro-units: 50000000 are 50.00.")


class PlanIn(shapes.Closed):
    plan = serializers.CharField(max_length=40, help_text="The key of a plan that is for sale, as in `plans` of GET /billing/.")


class LimitsIn(shapes.Closed):
    """What is left out stays as it is; null switches it off."""

    alert_micros = serializers.IntegerField(allow_null=True, required=False, max_value=MOST)
    stop_micros = serializers.IntegerField(allow_null=True, required=False, max_value=MOST)


class LimitsOut(serializers.Serializer):
    alert_micros = serializers.IntegerField(allow_null=True)
    stop_micros = serializers.IntegerField(allow_null=True)


class WhereOut(serializers.Serializer):
    url = serializers.CharField(help_text="Stripe's page, on which a person goes on. Nothing is charged before.")


_KEY = OpenApiParameter("Idempotency-Key", str, OpenApiParameter.HEADER, description="The same key and body open one page, once.")


class _Opening(OncePerKey, GenericAPIView):
    """A page of Stripe's is opened: for owners and admins, with the scope billing:write."""

    noun = "billing"
    roles: ClassVar = {"POST": Role.ADMIN}

    def opened(self, request: Request, open_page: Callable[..., str], *terms: Any) -> Response:
        back = request.build_absolute_uri(reverse("billing:account"))
        url = open_page(stripe_client.connect(), tenant_of(request), request.user, *terms, back, timezone.now())
        return Response({"url": url}, status=status.HTTP_201_CREATED, headers={"Cache-Control": "no-store"})


class Checkout(_Opening):
    @documented(WhereOut, CHANGED, 201, request=CheckoutIn, parameters=[_KEY])
    def post(self, request: Request) -> Response:
        """Buy credit: the address of a Checkout. It is credited when Stripe says that it is paid."""
        return self.opened(request, topups.buy, shapes.valid(CheckoutIn, request)["micros"])


class PlanChange(_Opening):
    @documented(WhereOut, CHANGED, 201, request=PlanIn, parameters=[_KEY])
    def post(self, request: Request) -> Response:
        """Take a plan, or change the present one: the address on which that is confirmed."""
        return self.opened(request, subscriptions.choose, shapes.valid(PlanIn, request)["plan"])


class CustomerPortal(_Opening):
    @documented(WhereOut, CHANGED, 201, request=None, parameters=[_KEY])
    def post(self, request: Request) -> Response:
        """Stripe's customer portal: cards, invoices, the subscription and its end."""
        return self.opened(request, subscriptions.portal)


class Limits(GenericAPIView):
    noun = "billing"
    roles: ClassVar = {"PATCH": Role.ADMIN}

    @documented(LimitsOut, REFUSED, request=LimitsIn)
    def patch(self, request: Request) -> Response:
        """Set the budget alert, the hard stop or both. The same again changes nothing."""
        tenant, now = tenant_of(request), timezone.now()
        given = {name.removesuffix("_micros"): value for name, value in shapes.valid(LimitsIn, request).items()}
        try:
            limits.change_some(tenant, request.user, given, now)
        except Invalid as refused:
            raise type(refused)([(f"{name}_micros", message) for name, message in refused.problems]) from None
        account = ledger.account_of(tenant, now)
        return Response(LimitsOut(account).data)


class Billing(GenericAPIView):
    noun = "billing"

    @documented(BillingOut, REFUSED)
    def get(self, request: Request) -> Response:
        """Balance, what is set aside for open jobs, and the plan's limits."""
        tenant, now = tenant_of(request), timezone.now()
        account = ledger.account_of(tenant, now)
        answer = {
            "currency": settings.CURRENCY,
            "payments": bool(settings.STRIPE_KEY),
            "balance_micros": account.balance_micros,
            "credit_line_micros": account.credit_line_micros,
            "held_micros": account.held_micros,
            "available_micros": account.available_micros,
            "plan": account.plan.key,
            "quotas": quotas.uses(tenant, now),
            "holds": tenant.holds.filter(closed_at=None).select_related("job"),
            "standing": standing.of(tenant, now),
            "forecast": forecast(tenant, now),
            "plans": Plan.objects.exclude(stripe_price="").order_by("key").values_list("key", flat=True) if settings.STRIPE_KEY else [],
            "alert_micros": account.alert_micros,
            "stop_micros": account.stop_micros,
        }
        return Response(BillingOut(answer).data)


class Usage(GenericAPIView):
    noun = "billing"

    @documented(UsageOut, REFUSED, parameters=[_MONTH, _GROUP])
    def get(self, request: Request) -> Response:
        """One month's tokens and cost, by day, job, model or kind."""
        month = usage.month_of(request.query_params.get("month"), timezone.now())
        by = chosen(request.query_params, "by", _BY, "day")
        sums = usage.by(tenant_of(request), month, by)
        return Response(UsageOut({"month": month.key, "by": by, "rows": sums, "total": usage.total(sums)}).data)


@extend_schema_view(list=documented(EntryOut(many=True), REFUSED))
class Entries(mixins.ListModelMixin, viewsets.GenericViewSet):
    """Each entry of the ledger, newest first: usage below 0, credit above, reversals with the entry that they take back."""

    noun = "billing"
    serializer_class = EntryOut
    queryset = Entry.objects.none()

    def get_queryset(self) -> Any:
        return tenant_of(self.request).entries.all()


@extend_schema_view(list=documented(InvoiceOut(many=True), REFUSED))
class Invoices(mixins.ListModelMixin, viewsets.GenericViewSet):
    """Invoices of paid plans, newest first."""

    noun = "billing"
    serializer_class = InvoiceOut
    queryset = Invoice.objects.none()

    def get_queryset(self) -> Any:
        return tenant_of(self.request).invoices.exclude(status="draft")


class Prices(GenericAPIView):
    """For everybody."""

    authentication_classes = ()
    permission_classes = (AllowAny, OnlyDocumented)

    @documented(PricesOut, {})
    def get(self, request: Request) -> Response:
        """What a million tokens of each kind cost now."""
        return Response(PricesOut({"currency": settings.CURRENCY, "prices": prices.current(timezone.now())}).data)
