"""Money and what it is counted by. The ledger is the truth: rows are added, never changed; a correction is a row too.

All money is in whole micro-units: 1,000,000 are one unit of the installation's currency. No float comes near it.
"""

from __future__ import annotations

from typing import Any

from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from portal.billing.stripe_models import (
    LIVE,
    Discrepancy,
    Dispute,
    Invoice,
    LateUsage,
    MeterEvent,
    StripeCustomer,
    StripeEvent,
    StripeMark,
    Subscription,
    TopUp,
)
from portal.jobs.models import Job
from tenants.models import Tenant

__all__ = (
    "LIVE",
    "Discrepancy",
    "Dispute",
    "Invoice",
    "LateUsage",
    "MeterEvent",
    "StripeCustomer",
    "StripeEvent",
    "StripeMark",
    "Subscription",
    "TopUp",
)

MILLION = 1_000_000


class Kind(models.TextChoices):
    """What was used. Tokens, except storage: megabyte-days."""

    PREFILL = "prefill"
    CACHED_PREFILL = "cached_prefill", "cached prefill"
    SAMPLED = "sampled"
    TRAINED = "trained"
    JUDGE = "judge"
    STORAGE = "storage"


CREDIT = "credit"
DEBIT = "debit"
MONEY = (CREDIT, DEBIT)  # what comes and goes, as opposed to what is used
TOKEN_KINDS = (Kind.PREFILL, Kind.CACHED_PREFILL, Kind.SAMPLED, Kind.TRAINED, Kind.JUDGE)


class SourceType(models.TextChoices):
    """What used it. ``source`` is that thing's public id; an evaluation's is its job's."""

    JOB = "job"
    EVALUATION = "evaluation"
    PROBE = "probe"
    TRIAL = "trial"
    CHAT = "chat"
    STORAGE = "storage"
    GRANT = "grant"
    CHECKOUT = "checkout"
    INVOICE = "invoice"
    REFUND = "refund"
    DISPUTE = "dispute"


class AppendOnly(Exception):
    """Somebody tried to change or delete a row of the ledger or the price list."""


class AppendOnlyRows(models.QuerySet):
    def update(self, **values: Any) -> int:
        raise AppendOnly("rows of the ledger are never changed; reverse the entry instead")

    def bulk_update(self, *args: Any, **options: Any) -> int:
        raise AppendOnly("rows of the ledger are never changed; reverse the entry instead")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise AppendOnly("rows of the ledger are never deleted; reverse the entry instead")


class AppendOnlyModel(models.Model):
    objects = AppendOnlyRows.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **options: Any) -> None:
        if not self._state.adding:
            raise AppendOnly(f"{self} stands; it is never changed")
        super().save(*args, **{**options, "force_insert": True})

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        raise AppendOnly(f"{self} stands; it is never deleted")


class Plan(models.Model):
    """What a tenant may use at most; empty: no limit."""

    key = models.SlugField(max_length=40, unique=True)
    name = models.CharField(max_length=100)
    running_jobs = models.PositiveIntegerField(null=True, blank=True, help_text="Jobs that the engine runs at once; others queue.")
    queued_jobs = models.PositiveIntegerField(null=True, blank=True, help_text="Jobs that may wait besides those.")
    tokens_per_month = models.PositiveBigIntegerField(null=True, blank=True, help_text="Of all kinds, in a calendar month (UTC).")
    storage_bytes = models.PositiveBigIntegerField(null=True, blank=True, help_text="Of datasets, as stored.")
    steps = models.PositiveIntegerField(null=True, blank=True, help_text="Training steps of one job.")
    rank = models.PositiveIntegerField(null=True, blank=True, help_text="LoRA rank of one job.")
    context_tokens = models.PositiveIntegerField(null=True, blank=True, help_text="Longest completion with its prompt.")
    stripe_price = models.CharField(
        max_length=64,
        blank=True,
        help_text="Stripe's price of its monthly fee, price_…; empty: operators assign this plan, nobody buys it.",
    )
    included_micros = models.BigIntegerField(default=0, help_text="Credit that each paid period brings, in micro-units.")
    overage_micros = models.BigIntegerField(
        default=0, help_text="How far below 0 a subscriber's balance may go, in micro-units; the next invoice asks for it."
    )

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["stripe_price"], condition=~Q(stripe_price=""), name="plan_stripe_price_once"),
            models.CheckConstraint(condition=Q(included_micros__gte=0, overage_micros__gte=0), name="plan_not_negative"),
        )

    def __str__(self) -> str:
        return str(self.name)


QUOTAS = ("running_jobs", "queued_jobs", "tokens_per_month", "storage_bytes", "steps", "rank", "context_tokens")


class Account(models.Model):
    """A tenant's money. ``balance_micros`` is the sum of its entries, kept in the transaction that adds one; ``held_micros`` the sum of
    its holds. What may be newly held is the difference, and what a subscription lets the balance go below 0.
    """

    tenant = models.OneToOneField(Tenant, models.PROTECT, related_name="account")
    plan = models.ForeignKey(Plan, models.PROTECT, related_name="+")
    balance_micros = models.BigIntegerField(default=0)
    held_micros = models.BigIntegerField(default=0)
    credit_line_micros = models.BigIntegerField(
        default=0, help_text="How far below 0 the balance may go: the overage of a live subscription."
    )
    alert_micros = models.BigIntegerField(null=True, blank=True, help_text="When a month has cost so much, somebody is told.")
    stop_micros = models.BigIntegerField(null=True, blank=True, help_text="Before a month costs more, jobs pause.")
    alerted_month = models.CharField(max_length=7, blank=True, help_text="The last month in which somebody was told, as in 2026-11.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="account_tenant_id"),
            models.CheckConstraint(condition=Q(held_micros__gte=0), name="account_held_not_negative"),
            models.CheckConstraint(condition=Q(credit_line_micros__gte=0), name="account_credit_line_not_negative"),
        )

    def __str__(self) -> str:
        return f"account of {self.tenant}"

    @property
    def available_micros(self) -> int:
        return int(self.balance_micros + self.credit_line_micros - self.held_micros)


class QuotaOverride(models.Model):
    """One limit of one tenant that differs from the plan's."""

    tenant = models.ForeignKey(Tenant, models.CASCADE, related_name="quota_overrides")
    quota = models.CharField(max_length=20, choices=[(name, name.replace("_", " ")) for name in QUOTAS])
    limit = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    reason = models.CharField(max_length=200)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "quota"], name="quotaoverride_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="quotaoverride_tenant_id"),
        )

    def __str__(self) -> str:
        return f"{self.quota} of {self.tenant}"


class Price(AppendOnlyModel):
    """What a million tokens (or megabyte-days) of a kind cost from a moment on. A new price is a new row; old rows price late events."""

    model = models.CharField(max_length=200, blank=True, help_text="A base model; empty: every model without a price of its own.")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    micros_per_million = models.PositiveBigIntegerField(help_text="In micro-units: 400000 is 0.40 for a million.")
    effective_from = models.DateTimeField()
    set_by = models.CharField(max_length=254)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["model", "kind", "effective_from"], name="price_once"),
            # One row of the ledger then stays far below the largest bigint.
            models.CheckConstraint(condition=Q(micros_per_million__lte=10**9), name="price_at_most_1000_a_million"),
        )
        ordering = ("model", "kind", "-effective_from")

    def __str__(self) -> str:
        return f"{self.kind} of {self.model or 'any model'} from {self.effective_from:%Y-%m-%d %H:%M}"


class Entry(AppendOnlyModel):
    """One row of the ledger. ``amount_micros``: below 0 what the tenant pays, above 0 what it gets.

    The key (tenant, source type, source, step, attempt, kind) makes each effect happen once, whatever is delivered twice.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="entries")
    at = models.DateTimeField(help_text="When it was used; the price is the one of this moment.")
    created_at = models.DateTimeField(default=timezone.now)
    source_type = models.CharField(max_length=12, choices=SourceType.choices)
    source = models.CharField(max_length=64)
    step = models.PositiveIntegerField(default=0)
    attempt = models.PositiveIntegerField(default=0)
    kind = models.CharField(max_length=20, choices=[*Kind.choices, (CREDIT, "credit"), (DEBIT, "debit")])
    model = models.CharField(max_length=200, blank=True)
    quantity = models.PositiveBigIntegerField()
    price_micros = models.PositiveBigIntegerField(help_text="Per million; 0 with a reason where nothing is charged.")
    amount_micros = models.BigIntegerField()
    reason = models.CharField(max_length=300, blank=True)
    by = models.CharField(max_length=254, blank=True, help_text="Who gave or reversed it; empty: the meter.")
    reverses = models.OneToOneField("self", models.PROTECT, null=True, related_name="reversal")
    told_hour = models.DateTimeField(null=True, help_text="The hour of the outbox that Stripe is told of it in; empty: it is not told.")
    overage_micros = models.BigIntegerField(
        default=0, help_text="The part of the amount that no credit covered: the next invoice asks for it."
    )

    class Meta:
        verbose_name_plural = "entries"
        constraints = (
            models.UniqueConstraint(
                fields=["tenant", "source_type", "source", "step", "attempt", "kind"], condition=Q(reverses=None), name="entry_once"
            ),
            models.UniqueConstraint(fields=["tenant", "id"], name="entry_tenant_id"),
            models.CheckConstraint(condition=Q(quantity__gt=0), name="entry_quantity_positive"),
            models.CheckConstraint(
                condition=Q(reverses__isnull=False)
                | Q(kind=CREDIT, amount_micros=F("quantity"))
                | Q(kind=DEBIT, amount_micros=-1 * F("quantity"))
                | (Q(kind__in=Kind.values) & Q(amount_micros=-1 * ((F("quantity") * F("price_micros") + MILLION // 2) / MILLION))),
                name="entry_amount_is_quantity_times_price",
            ),
            models.CheckConstraint(
                condition=~Q(reason="") | Q(kind__in=Kind.values, reverses=None), name="entry_gift_and_reversal_have_reason"
            ),
            models.CheckConstraint(condition=Q(overage_micros__gte=0), name="entry_overage_not_negative"),
        )
        indexes = (
            models.Index(fields=["tenant", "-id"], name="entry_newest"),
            models.Index(fields=["tenant", "source", "step"], name="entry_source"),
            models.Index(fields=["tenant", "-id"], condition=~Q(by=""), name="entry_decided"),
            models.Index(fields=["tenant", "told_hour"], condition=Q(told_hour__isnull=False), name="entry_told"),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"entry {self.pk}: {self.kind} of {self.source}"


class DailyUsage(models.Model):
    """The ledger's usage by UTC day, kept in the transaction that adds the entries. A reversal counts below 0 on its own day."""

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="daily_usage")
    day = models.DateField()
    source_type = models.CharField(max_length=12, choices=SourceType.choices)
    source = models.CharField(max_length=64)
    model = models.CharField(max_length=200, blank=True)
    kind = models.CharField(max_length=20, choices=Kind.choices)
    quantity = models.BigIntegerField(default=0)
    amount_micros = models.BigIntegerField(default=0)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "day", "source_type", "source", "model", "kind"], name="dailyusage_once"),
            models.UniqueConstraint(fields=["tenant", "id"], name="dailyusage_tenant_id"),
        )
        indexes = (models.Index(fields=["tenant", "source"], name="dailyusage_source"),)
        ordering = ("-day", "source", "kind")


class Hold(models.Model):
    """Money set aside for what is going to be used, so that two things never spend the same. One per source, from before it begins to its
    end: a job, a chat, a probe, a trial of a reward. Whatever is tried again finds the hold that stands.
    """

    tenant = models.ForeignKey(Tenant, models.PROTECT, related_name="holds")
    source_type = models.CharField(max_length=12, choices=SourceType.choices, default=SourceType.JOB)
    source = models.CharField(max_length=64, help_text="The public id of what it is for.")
    job = models.OneToOneField(Job, models.PROTECT, null=True, related_name="hold")
    expires_at = models.DateTimeField(
        null=True, blank=True, help_text="When it is released at the latest, should whoever placed it have died. Jobs end by events."
    )
    micros = models.BigIntegerField(default=0, help_text="Held now.")
    step_tokens = models.JSONField(default=dict, help_text="Kind to tokens: the most that one step can use, with its evaluation.")
    estimate_micros = models.BigIntegerField(null=True, help_text="What the job was expected to cost when it was started.")
    budget_micros = models.PositiveBigIntegerField(null=True, blank=True)
    budget_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    stop_code = models.CharField(
        max_length=20, blank=True, help_text="Why billing asked the job to pause: credit, budget, quota or payment."
    )
    stop_reason = models.CharField(max_length=300, blank=True)
    closed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["tenant", "id"], name="hold_tenant_id"),
            models.UniqueConstraint(fields=["tenant", "source_type", "source"], name="hold_once"),
            models.CheckConstraint(
                condition=Q(source_type="job", job__isnull=False, expires_at=None)
                | (~Q(source_type="job") & Q(job=None, expires_at__isnull=False)),
                name="hold_of_a_job_or_expiring",
            ),
            models.CheckConstraint(condition=Q(micros__gte=0), name="hold_not_negative"),
            models.CheckConstraint(condition=Q(closed_at=None) | Q(micros=0), name="hold_closed_is_empty"),
        )
        indexes = (models.Index(fields=["expires_at"], condition=Q(closed_at=None, expires_at__isnull=False), name="hold_expires"),)

    def __str__(self) -> str:
        return f"hold of {self.job or self.source}"
