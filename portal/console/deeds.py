"""What an operator may do: each deed with its words, its fields and its effect. One table, read by pages and tests alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import transaction

from portal import gateway
from portal.billing import gate, ledger, money
from portal.billing.models import QUOTAS, Account, Plan, QuotaOverride
from portal.errors import Conflict
from portal.jobs import engines, tasks
from portal.jobs.models import OPEN_STATES, Job, JobCommand, State
from portal.json_keys import read_json
from tenants import audit
from tenants.doors import look_again
from tenants.models import Tenant, User

ENGINE = "engine"


class DeedForm(forms.Form):
    """Every deed has a reason; those of tenants' things are read by the tenant."""

    reason = forms.CharField(
        max_length=300, min_length=3, widget=forms.Textarea(attrs={"rows": 2}), help_text="Why. It stands in the audit log."
    )

    field_order = ("priority", "changes", "amount", "key", "plan", "quota", "limit", "weight", "reason")


class PriorityForm(DeedForm):
    priority = forms.IntegerField(
        min_value=-100, max_value=100, help_text="-100 to 100; the larger goes first among the jobs of its organisation."
    )


class PolicyForm(DeedForm):
    changes = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 5, "spellcheck": "false"}),
        help_text='A JSON object of fields to change, as in {"max_active": 12, "adaptive": {}}. The rest stays.',
    )

    def clean_changes(self) -> dict[str, Any]:
        try:
            changes = read_json(self.cleaned_data["changes"])
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if not isinstance(changes, dict) or not changes:
            raise ValidationError("must be an object with at least one field")
        return changes


class CreditForm(DeedForm):
    amount = forms.CharField(max_length=20, help_text="As in 12.50.")
    key = forms.SlugField(max_length=64, help_text="Names this gift: the same key gives it once, however often the form is sent.")

    def clean_amount(self) -> int:
        try:
            micros = money.read(self.cleaned_data["amount"])
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if micros <= 0:
            raise ValidationError("must be above 0")
        return micros


class PlanForm(DeedForm):
    plan = forms.ModelChoiceField(Plan.objects.none(), empty_label=None)

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.fields["plan"].queryset = Plan.objects.order_by("name")


class OverrideForm(DeedForm):
    quota = forms.ChoiceField(choices=[(name, name.replace("_", " ")) for name in QUOTAS])
    limit = forms.IntegerField(min_value=0, max_value=10**15, required=False, help_text="Empty: no limit.")


class WeightForm(DeedForm):
    weight = forms.FloatField(
        min_value=0.01, max_value=1000, help_text="Its share of the engine beside others; 1 is usual. Holds for jobs submitted from now on."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """What is to be done: by whom, to what (a Job, a Tenant or an Engine), with the form's cleaned fields."""

    by: User
    target: Any
    given: dict[str, Any]
    now: datetime

    @property
    def reason(self) -> str:
        return self.given["reason"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Deed:
    """``do`` answers what the audit log keeps of it. Raises ``EngineDown``, ``EngineRefused``, ``Invalid``."""

    slug: str
    on: str  # engine | job | tenant
    title: str
    words: str
    button: str
    do: Callable[[Order], dict[str, Any]]
    form: type[DeedForm] = DeedForm
    danger: bool = False


def admission(mode: str) -> Callable[[Order], dict[str, Any]]:
    return lambda order: {"admission": gateway.engine(order.target.name).set_admission(mode)}


def policy(order: Order) -> dict[str, Any]:
    gateway.engine(order.target.name).set_policy(order.given["changes"])
    return {"changes": order.given["changes"]}


def priority(order: Order) -> dict[str, Any]:
    _check_open(order.target)
    engines.of(order.target).reprioritise(order.target.public_id, order.given["priority"])
    return {"priority": order.given["priority"]}


def suspend(order: Order) -> dict[str, Any]:
    """Nobody of it gets in, its tokens are refused, and its jobs hold after the step under way, with their versions."""
    with transaction.atomic():
        closed = Tenant.objects.filter(pk=order.target.pk, suspended_at=None)
        if not closed.update(suspended_at=order.now, suspended_reason=order.reason):
            raise Conflict([("organisation", "is suspended already")])
        jobs = list(order.target.jobs.filter(state__in=OPEN_STATES).exclude(state=State.PAUSED))
        for job in jobs:
            _wish(job, JobCommand.Kind.PAUSE, order)
        audit.record(order.target, order.by, "organisation.suspended", order.target, reason=order.reason)
        look_again(*order.target.memberships.values_list("user_id", flat=True))  # an update of rows tells nobody by itself
    return {"paused_jobs": len(jobs)}


def restore(order: Order) -> dict[str, Any]:
    with transaction.atomic():
        suspended = Tenant.objects.filter(pk=order.target.pk, suspended_at__isnull=False)
        if not suspended.update(suspended_at=None, suspended_reason=""):
            raise Conflict([("organisation", "is not suspended")])
        audit.record(order.target, order.by, "organisation.restored", order.target, reason=order.reason)
    return {}


def barred(deed: Deed, target: Any) -> str:
    """Why this deed cannot be done to it now, in a sentence; empty where it can be tried."""
    if deed.on != "job":
        return ""
    if not target.is_open:
        return f"This job has ended ({target.state}): nothing about it can be changed any more."
    if deed.slug in ("job-pause", "job-resume") and target.is_stopping:
        return "This job has been asked to stop, so it cannot be paused or resumed any more."
    return ""


def _check_open(job: Job) -> None:
    if not job.is_open:
        raise Conflict([("job", f"has ended already ({job.state})")])


def _wish(job: Job, kind: JobCommand.Kind, order: Order) -> None:
    reason = f"by the operator: {order.reason}"
    JobCommand.objects.create(tenant_id=job.tenant_id, job=job, kind=kind, reason=reason, requested_by=order.by, requested_at=order.now)
    audit.record(job.tenant, order.by, f"job.{kind.value}", job, reason=reason)
    tasks.deliver_on_commit(job)


def command(kind: JobCommand.Kind) -> Callable[[Order], dict[str, Any]]:
    """Written down like a member's own wish, and carried to the engine in the same order, as often as it takes."""

    def wish(order: Order) -> dict[str, Any]:
        with transaction.atomic():
            job = Job.objects.select_for_update().get(pk=order.target.pk)
            _check_open(job)
            if kind != JobCommand.Kind.CANCEL and job.is_stopping:
                raise Conflict([("job", f"has been asked to stop, so it cannot be {kind}d any more")])
            if kind == JobCommand.Kind.RESUME:
                if job.state != State.PAUSED:
                    raise Conflict([("job", f"is {job.state}; only a paused job can be resumed")])
                gate.resume(job, order.now)
            _wish(job, kind, order)
        return {}

    return wish


def credit(order: Order) -> dict[str, Any]:
    entry = ledger.grant(order.target, order.given["key"], order.given["amount"], order.reason, order.by.email, order.now)
    return {"amount_micros": entry.amount_micros, "entry": entry.pk}


def plan(order: Order) -> dict[str, Any]:
    with transaction.atomic():
        account = ledger.locked(order.target, order.now)
        before, chosen = account.plan.key, order.given["plan"]
        Account.objects.filter(pk=account.pk).update(plan=chosen)
    return {"from": before, "to": chosen.key}


def override(order: Order) -> dict[str, Any]:
    quota, limit = order.given["quota"], order.given["limit"]
    QuotaOverride.objects.update_or_create(tenant=order.target, quota=quota, defaults={"limit": limit, "reason": order.reason[:200]})
    return {"quota": quota, "limit": limit}


def no_override(order: Order) -> dict[str, Any]:
    quota = order.given["quota"]
    gone, _ = QuotaOverride.objects.filter(tenant=order.target, quota=quota).delete()
    if not gone:
        raise Conflict([("quota", "has no limit of its own here; the plan's holds already")])
    return {"quota": quota}


def weight(order: Order) -> dict[str, Any]:
    before = order.target.weight
    Tenant.objects.filter(pk=order.target.pk).update(weight=order.given["weight"])
    return {"from": before, "to": order.given["weight"]}


class NoOverrideForm(DeedForm):
    quota = OverrideForm.base_fields["quota"]


DEEDS = {
    deed.slug: deed
    for deed in (
        Deed(
            slug="admission-open",
            on=ENGINE,
            title="Open admission",
            words="Jobs are admitted again, in the order of the queue.",
            button="Open admission",
            do=admission("open"),
        ),
        Deed(
            slug="admission-pause",
            on=ENGINE,
            title="Pause admission",
            words="No further job is admitted. Admitted jobs go on to their ends; submitted ones wait and say why.",
            button="Pause admission",
            do=admission("pause"),
        ),
        Deed(
            slug="drain",
            on=ENGINE,
            title="Drain the engine",
            words="No job is admitted and no further step begins. Steps under way commit; then the engine is idle and may be stopped.",
            button="Drain",
            do=admission("drain"),
            danger=True,
        ),
        Deed(
            slug="policy",
            on=ENGINE,
            title="Change the scheduling policy",
            words="Takes effect at once and outlives a restart. Nothing under way loses its place.",
            button="Change the policy",
            do=policy,
            form=PolicyForm,
        ),
        Deed(
            slug="job-priority",
            on="job",
            title="Change the priority",
            words="Holds for its next step.",
            button="Change the priority",
            do=priority,
            form=PriorityForm,
        ),
        Deed(
            slug="job-pause",
            on="job",
            title="Pause the job",
            words="The running step commits, then the job holds until somebody resumes it. Its owner reads the reason.",
            button="Pause the job",
            do=command(JobCommand.Kind.PAUSE),
        ),
        Deed(
            slug="job-resume",
            on="job",
            title="Resume the job",
            words="It queues again and goes on from its last committed version.",
            button="Resume the job",
            do=command(JobCommand.Kind.RESUME),
        ),
        Deed(
            slug="job-stop",
            on="job",
            title="Stop the job",
            words="Generation is aborted; a training that has begun commits. Its versions stay. Not to be undone. Its owner reads why.",
            button="Stop the job",
            do=command(JobCommand.Kind.CANCEL),
            danger=True,
        ),
        Deed(
            slug="tenant-credit",
            on="tenant",
            title="Give credit",
            words="Added to the balance at once. The organisation reads the reason on its usage page.",
            button="Give credit",
            do=credit,
            form=CreditForm,
        ),
        Deed(
            slug="tenant-plan",
            on="tenant",
            title="Change the plan",
            words="Its limits hold from the next request on; running jobs go on.",
            button="Change the plan",
            do=plan,
            form=PlanForm,
        ),
        Deed(
            slug="tenant-limit",
            on="tenant",
            title="Set a limit of its own",
            words="Takes the place of the plan's limit for this organisation alone.",
            button="Set the limit",
            do=override,
            form=OverrideForm,
        ),
        Deed(
            slug="tenant-no-limit",
            on="tenant",
            title="Take back a limit of its own",
            words="The plan's limit holds again.",
            button="Take it back",
            do=no_override,
            form=NoOverrideForm,
        ),
        Deed(
            slug="tenant-suspend",
            on="tenant",
            title="Suspend the organisation",
            words="Its members and tokens are shut out and read the reason; its jobs hold after the step under way. Nothing is deleted.",
            button="Suspend it",
            do=suspend,
            danger=True,
        ),
        Deed(
            slug="tenant-restore",
            on="tenant",
            title="Lift the suspension",
            words="Its members and tokens get in again. Its jobs stay paused until somebody resumes them.",
            button="Lift it",
            do=restore,
        ),
        Deed(
            slug="tenant-weight",
            on="tenant",
            title="Change the share",
            words="How much of the engine it gets while others wait too.",
            button="Change the share",
            do=weight,
            form=WeightForm,
        ),
    )
}
