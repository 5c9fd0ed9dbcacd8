"""What we know of Stripe's side: each row mirrors one of its objects, or waits to be told to it. The ledger stays the truth."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.ids import new_id
from tenants.models import Tenant, User


def topup_id() -> str:
    return new_id("top")


class StripeCustomer(models.Model):
    """A tenant at Stripe; made when it is first needed."""

    tenant = models.OneToOneField(Tenant, models.PROTECT, related_name="stripe_customer")
    customer_id = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="stripecustomer_tenant_id"),)

    def __str__(self) -> str:
        return f"{self.customer_id} ({self.tenant})"


class MeterEvent(models.Model):
    """The outbox: what one tenant used of one meter in one hour. It grows in the transaction that adds the entries, until it is sealed;
    then it is sent, once, under an identifier that follows from its key.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="meter_events")
    meter = models.CharField(max_length=40)
    hour = models.DateTimeField(help_text="Its beginning (UTC), by the clock of the writing.")
    quantity = models.BigIntegerField(help_text="Tokens, or micro-units of the overage.")
    sealed_at = models.DateTimeField(null=True, blank=True, help_text="From then on the quantity is fixed.")
    tried_at = models.DateTimeField(null=True, blank=True, help_text="First attempt: Stripe knows the identifier for 24 hours from then.")
    next_try_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "hour", "meter"], name="meterevent_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="meterevent_tenant_id"),
            models.CheckConstraint(condition=Q(quantity__gt=0), name="meterevent_quantity_positive"),
            models.CheckConstraint(condition=Q(sent_at=None) | Q(sealed_at__isnull=False), name="meterevent_sealed_before_sent"),
        )
        indexes = (models.Index(fields=["hour"], condition=Q(sent_at=None), name="meterevent_unsent"),)
        ordering = ("hour", "id")

    def __str__(self) -> str:
        return self.identifier

    @property
    def identifier(self) -> str:
        """The same for the same tenant, meter and hour, whoever sends it and how often."""
        return f"{self.tenant.public_id}.{self.meter}.{self.hour:%Y%m%d%H}"


class StripeEvent(models.Model):
    """A notice of Stripe's, stored before it is answered. Handling it fetches the object anew: what the notice says of it may be old."""

    class Found(models.TextChoices):
        WEBHOOK = "webhook"
        BACKFILL = "backfill", "found missing"

    event_id = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=80)
    object_id = models.CharField(max_length=100)
    created_at = models.DateTimeField(help_text="By Stripe's clock.")
    received_at = models.DateTimeField()
    found = models.CharField(max_length=10, choices=Found.choices, default=Found.WEBHOOK)
    handled_at = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=500, blank=True)

    class Meta:
        indexes = (models.Index(fields=["received_at"], condition=Q(handled_at=None), name="stripeevent_unhandled"),)
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return f"{self.kind} of {self.object_id}"


class StripeMark(models.Model):
    """How often an object of Stripe's was read and written down here, so that nobody writes down an older state over a newer one."""

    object_id = models.CharField(max_length=200, unique=True)
    seen = models.PositiveIntegerField(default=0)
    at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.object_id}, seen {self.seen} times"


class TopUp(models.Model):
    """Credit that somebody is buying at Checkout. It is credited when Stripe says that it is paid, once."""

    class State(models.TextChoices):
        OPEN = "open"
        PAID = "paid"
        EXPIRED = "expired"
        FAILED = "failed"

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="topups")
    public_id = models.CharField(max_length=32, unique=True, default=topup_id, editable=False)
    micros = models.BigIntegerField()
    currency = models.CharField(max_length=3)
    session_id = models.CharField(max_length=200, unique=True, null=True)
    payment_id = models.CharField(max_length=80, blank=True, db_index=True)
    state = models.CharField(max_length=10, choices=State.choices, default=State.OPEN)
    bought_by = models.ForeignKey(User, models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="topup_tenant_id"),
            models.CheckConstraint(condition=Q(micros__gt=0), name="topup_positive"),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"{self.public_id} of {self.tenant}"


class Subscription(models.Model):
    """A tenant's paid plan, as Stripe has it."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="subscriptions")
    subscription_id = models.CharField(max_length=64, unique=True)
    plan = models.ForeignKey("billing.Plan", models.PROTECT, null=True, related_name="+")
    status = models.CharField(max_length=30)
    period_start = models.DateTimeField(null=True)
    period_end = models.DateTimeField(null=True)
    cancel_at_period_end = models.BooleanField(default=False)
    created_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="subscription_tenant_id"),)
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return f"{self.subscription_id} of {self.tenant}"

    @property
    def is_live(self) -> bool:
        return self.status in LIVE


# Stripe goes on trying to collect in `past_due` and `unpaid`; what that means for jobs is `standing`'s affair.
LIVE = ("trialing", "active", "past_due", "unpaid")


class Invoice(models.Model):
    """An invoice of Stripe's. Amounts are in the currency's smallest unit, as Stripe counts them."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="invoices")
    invoice_id = models.CharField(max_length=64, unique=True)
    number = models.CharField(max_length=64, blank=True)
    status = models.CharField(max_length=20, help_text="draft, open, paid, void or uncollectible")
    currency = models.CharField(max_length=3)
    total_minor = models.BigIntegerField()
    paid_minor = models.BigIntegerField()
    lines = models.JSONField(default=list, help_text="Text, amount, quantity, price and period of each line.")
    page_url = models.CharField(max_length=500, blank=True)
    pdf_url = models.CharField(max_length=500, blank=True)
    payment_id = models.CharField(max_length=80, blank=True, db_index=True)
    created_at = models.DateTimeField()
    failed_at = models.DateTimeField(null=True, help_text="When a payment of it was first seen to fail.")

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="invoice_tenant_id"),)
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return str(self.number or self.invoice_id)


class LateUsage(models.Model):
    """Overage that Stripe got after it had closed the invoice of its period: a line of its own on the next invoice. At most once per
    invoice; the amount is fixed before Stripe hears of it.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="late_usage")
    invoice = models.OneToOneField(Invoice, models.PROTECT, related_name="late_usage", help_text="The one that was closed without it.")
    micros = models.BigIntegerField()
    item_id = models.CharField(max_length=64, blank=True, help_text="Stripe's invoice item; empty: it is not asked for yet.")
    created_at = models.DateTimeField()

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="lateusage_tenant_id"),
            models.CheckConstraint(condition=Q(micros__gt=0), name="lateusage_positive"),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"late usage of invoice {self.invoice}"


class Dispute(models.Model):
    """A payment that the tenant's bank takes back, or wants to."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="disputes")
    dispute_id = models.CharField(max_length=64, unique=True)
    status = models.CharField(max_length=40)
    micros = models.BigIntegerField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["tenant", "id"], name="dispute_tenant_id"),)
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return str(self.dispute_id)


class Discrepancy(models.Model):
    """Where Stripe and we do not say the same. Found at night, told to operators, mended by people."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, null=True, related_name="+")
    what = models.CharField(max_length=200)
    ours = models.CharField(max_length=200)
    theirs = models.CharField(max_length=200)
    found_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=["what"], name="discrepancy_once"),)
        ordering = ("-found_at", "-id")
        verbose_name_plural = "discrepancies"

    def __str__(self) -> str:
        return f"{self.what}: {self.ours} here, {self.theirs} at Stripe"
