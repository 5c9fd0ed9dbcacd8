"""Operators' records of money: plans and limits are edited, credit is granted with its reason, prices are added. The rest is shown."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from django.utils import timezone
from unfold.admin import ModelAdmin
from unfold.widgets import UnfoldAdminTextInputWidget

from portal.billing import costs, ledger, money, subscriptions
from portal.billing.models import (
    Account,
    DailyUsage,
    Discrepancy,
    Dispute,
    Entry,
    Hold,
    Invoice,
    LateUsage,
    MeterEvent,
    Plan,
    Price,
    QuotaOverride,
    StripeCustomer,
    StripeEvent,
    StripeMark,
    Subscription,
    TopUp,
)
from tenants.records import ReadOnly


class GrantForm(forms.ModelForm):
    """``key`` is made with the empty form, so that a form sent twice grants once."""

    amount = forms.CharField(widget=UnfoldAdminTextInputWidget, help_text="In whole units, as in 50.00.")
    key = forms.CharField(widget=forms.HiddenInput, initial=lambda: f"grant-{uuid4().hex}", max_length=64)

    class Meta:
        model = Entry
        fields = ("tenant", "reason")

    def clean_amount(self) -> int:
        try:
            micros = money.read(self.cleaned_data["amount"])
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if micros <= 0:
            raise ValidationError("must be above 0; to take credit back, reverse its entry (manage.py reverse_entry)")
        return micros

    def clean_reason(self) -> str:
        if not (reason := str(self.cleaned_data["reason"]).strip()):
            raise ValidationError("say why: the tenant reads it")
        return reason


@admin.register(Entry)
class EntryAdmin(ReadOnly):
    """Adding one grants credit. An entry is taken back by ``manage.py reverse_entry``."""

    form = GrantForm
    list_display = (
        "at",
        "tenant",
        "source_type",
        "source",
        "step",
        "attempt",
        "kind",
        "quantity",
        "price_micros",
        "amount",
        "reason",
        "by",
    )
    list_filter = ("source_type", "kind")
    search_fields = ("source", "tenant__name", "reason", "by")
    list_select_related = ("tenant",)

    @admin.display(description="amount")
    def amount(self, entry: Entry) -> str:
        return money.shown(entry.amount_micros)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_entry"))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("tenant", "amount", "reason", "key") if obj is None else self.list_display

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return () if obj is None else self.list_display

    def save_model(self, request: HttpRequest, obj: Entry, form: GrantForm, change: bool) -> None:
        given = form.cleaned_data
        entry = ledger.grant(given["tenant"], given["key"], given["amount"], given["reason"], request.user.email, timezone.now())
        obj.__dict__.update(entry.__dict__)  # what the admin goes on to log is the row as it stands


@admin.register(Price)
class PriceAdmin(ReadOnly):
    """A price is never changed: add one that holds from a moment to come."""

    list_display = ("kind", "model", "micros_per_million", "effective_from", "set_by")
    list_filter = ("kind",)
    fields = ("kind", "model", "micros_per_million", "effective_from")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("billing.add_price"))

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **options: Any) -> Any:
        return super().get_form(request, obj, change, **{**options, "form": PriceForm} if obj is None else options)

    def save_model(self, request: HttpRequest, obj: Price, form: Any, change: bool) -> None:
        obj.set_by = request.user.email
        obj.save()


class PriceForm(forms.ModelForm):
    class Meta:
        model = Price
        fields = ("kind", "model", "micros_per_million", "effective_from")

    def clean_effective_from(self) -> Any:
        """Steps of the past are billed already: a price from back then would hold for late ones only."""
        if (since := self.cleaned_data["effective_from"]) < timezone.now():
            raise ValidationError("must lie ahead: what was used before it was known is not charged by it")
        return since


@admin.register(Plan)
class PlanAdmin(ModelAdmin):
    list_display = ("name", "key", "running_jobs", "queued_jobs", "tokens_per_month", "storage_bytes", "steps", "rank", "context_tokens")

    def save_model(self, request: HttpRequest, obj: Plan, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        subscriptions.follow_plan(obj)


@admin.register(QuotaOverride)
class QuotaOverrideAdmin(ModelAdmin):
    list_display = ("tenant", "quota", "limit", "reason")
    search_fields = ("tenant__name",)
    autocomplete_fields = ("tenant",)


@admin.register(Account)
class AccountAdmin(ModelAdmin):
    """Only the plan is chosen here; the sums follow the entries and the holds."""

    list_display = ("tenant", "plan", "balance", "held", "created_at")
    list_select_related = ("tenant", "plan")
    search_fields = ("tenant__name",)
    fields = ("tenant", "plan", "balance", "held", "created_at")
    readonly_fields = ("tenant", "balance", "held", "created_at")

    @admin.display
    def balance(self, account: Account) -> str:
        return money.shown(account.balance_micros)

    @admin.display
    def held(self, account: Account) -> str:
        return money.shown(account.held_micros)

    def save_model(self, request: HttpRequest, obj: Account, form: Any, change: bool) -> None:
        Account.objects.filter(pk=obj.pk).update(plan=obj.plan)  # never the sums: they may have moved since the form was opened

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Hold)
class HoldAdmin(ReadOnly):
    """A job's own page here sets what it was billed beside how long it had the devices."""

    fields = (
        "job",
        "source_type",
        "source",
        "tenant",
        "micros",
        "estimate",
        "cost",
        "rollout_seconds",
        "train_seconds",
        "per_device_hour",
        "stop_code",
        "stop_reason",
    )
    readonly_fields = fields
    list_display = (
        "source",
        "source_type",
        "job",
        "tenant",
        "micros",
        "estimate",
        "cost",
        "budget_micros",
        "budget_tokens",
        "stop_code",
        "stop_reason",
        "closed_at",
    )
    list_filter = ("source_type", "stop_code", ("closed_at", admin.EmptyFieldListFilter))
    list_select_related = ("job", "tenant")

    @admin.display
    def estimate(self, hold: Hold) -> str:
        return "" if hold.estimate_micros is None else money.shown(hold.estimate_micros)

    @admin.display
    def rollout_seconds(self, hold: Hold) -> str:
        return f"{costs.device_seconds(hold.job)[0]:,.1f}" if hold.job else ""

    @admin.display
    def train_seconds(self, hold: Hold) -> str:
        return f"{costs.device_seconds(hold.job)[1]:,.1f}" if hold.job else ""

    @admin.display(description="billed for an hour of both")
    def per_device_hour(self, hold: Hold) -> str:
        seconds = sum(costs.device_seconds(hold.job)) if hold.job else 0
        return money.shown(round(costs.of(hold.job) * 3600 / seconds)) if seconds else ""

    @admin.display(description="cost so far")
    def cost(self, hold: Hold) -> str:
        return money.shown(costs.of(hold.job)) if hold.job else ""


@admin.register(DailyUsage)
class DailyUsageAdmin(ReadOnly):
    list_display = ("day", "tenant", "source_type", "source", "model", "kind", "quantity", "amount_micros")
    list_filter = ("kind", "source_type")
    list_select_related = ("tenant",)


@admin.register(MeterEvent)
class MeterEventAdmin(ReadOnly):
    """What waits to be told to Stripe, and what was."""

    list_display = ("hour", "tenant", "meter", "quantity", "sealed_at", "attempts", "tried_at", "next_try_at", "sent_at", "error")
    list_filter = (("sent_at", admin.EmptyFieldListFilter), "meter")
    list_select_related = ("tenant",)


@admin.register(LateUsage)
class LateUsageAdmin(ReadOnly):
    """Overage that missed its invoice, and the item that puts it onto the next one."""

    list_display = ("created_at", "tenant", "invoice", "micros", "item_id")
    list_select_related = ("tenant", "invoice")


@admin.register(StripeEvent)
class StripeEventAdmin(ReadOnly):
    list_display = ("created_at", "kind", "object_id", "found", "received_at", "handled_at", "attempts", "error")
    list_filter = (("handled_at", admin.EmptyFieldListFilter), "found", "kind")
    search_fields = ("event_id", "object_id")


@admin.register(TopUp)
class TopUpAdmin(ReadOnly):
    list_display = ("public_id", "tenant", "micros", "currency", "state", "bought_by", "created_at", "ended_at")
    list_filter = ("state",)
    list_select_related = ("tenant", "bought_by")
    search_fields = ("public_id", "session_id", "payment_id", "tenant__name")


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnly):
    list_display = ("subscription_id", "tenant", "plan", "status", "period_start", "period_end", "cancel_at_period_end")
    list_filter = ("status",)
    list_select_related = ("tenant", "plan")


@admin.register(Invoice)
class InvoiceAdmin(ReadOnly):
    list_display = ("created_at", "number", "tenant", "status", "total_minor", "paid_minor", "currency", "failed_at")
    list_filter = ("status",)
    list_select_related = ("tenant",)
    search_fields = ("invoice_id", "number", "tenant__name")


@admin.register(Dispute)
class DisputeAdmin(ReadOnly):
    list_display = ("created_at", "dispute_id", "tenant", "status", "micros")
    list_select_related = ("tenant",)


@admin.register(StripeCustomer)
class StripeCustomerAdmin(ReadOnly):
    list_display = ("customer_id", "tenant", "created_at")
    list_select_related = ("tenant",)
    search_fields = ("customer_id", "tenant__name")


@admin.register(Discrepancy)
class DiscrepancyAdmin(ReadOnly):
    """Where Stripe and we do not say the same; a row goes when a later night finds that they agree."""

    list_display = ("found_at", "what", "ours", "theirs", "tenant")
    list_select_related = ("tenant",)


@admin.register(StripeMark)
class StripeMarkAdmin(ReadOnly):
    """When which of Stripe's objects was written down here last."""

    list_display = ("object_id", "seen", "at")
    search_fields = ("object_id",)
