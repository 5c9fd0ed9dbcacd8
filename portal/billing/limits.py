"""An organisation's own limits of what a month may cost: one tells, one stops. Both are off unless somebody sets them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import structlog
from django.core.mail import send_mail
from django.db import transaction
from django.db.models import Q, Sum
from django.urls import reverse

from portal.billing import ledger, money
from portal.billing.models import Account
from portal.errors import Invalid
from tenants import audit
from tenants.access import require
from tenants.models import Role, Tenant, User

log = structlog.get_logger(__name__)


def change(tenant: Tenant, user: User, alert: int | None, stop: int | None, now: datetime) -> None:
    """Both; in micro-units, None: off. Raises ``Forbidden``, ``Invalid``."""
    change_some(tenant, user, {"alert": alert, "stop": stop}, now)


def change_some(tenant: Tenant, user: User, given: Mapping[str, int | None], now: datetime) -> None:
    """``given``: of alert and stop what is to change. An alert that is changed tells anew. Raises ``Forbidden``, ``Invalid``."""
    require(tenant, user, Role.ADMIN)
    bad = [(name, "must be above 0; leave it empty for none") for name, value in given.items() if value is not None and value <= 0]
    if bad:
        raise Invalid(bad)
    account = ledger.account_of(tenant, now)
    with transaction.atomic():
        if "alert" in given:
            Account.objects.filter(pk=account.pk).exclude(alert_micros=given["alert"]).update(alerted_month="")
        Account.objects.filter(pk=account.pk).update(**{f"{name}_micros": value for name, value in given.items()})
        words = {name: "off" if value is None else money.shown(value) for name, value in given.items()}
        audit.record(tenant, user, "billing.limits", **words)


def typed(micros: int | None) -> str:
    """As a person types it; "" for none."""
    return "" if micros is None else money.plain(micros)


def spent_this_month(tenant: Tenant, now: datetime) -> int:
    """What this month's usage costs so far (UTC), reversals taken off."""
    first = now.astimezone(UTC).date().replace(day=1)
    return -int(tenant.daily_usage.filter(day__gte=first).aggregate(total=Sum("amount_micros"))["total"] or 0)


def obstacle(tenant: Tenant, more: int, now: datetime, *, what: str = "the next steps") -> str:
    """Why ``more`` micro-units do not fit into this month; "" when they do."""
    stop = Account.objects.filter(tenant=tenant).values_list("stop_micros", flat=True).first()
    if stop is None or (spent := spent_this_month(tenant, now)) + more <= stop:
        return ""
    return (
        f"this month has cost {money.shown(spent)}, {what} may cost {money.shown(more)}, and your organisation stops at "
        f"{money.shown(stop)}; raise that on the billing page, or wait for the next month"
    )


def tell(now: datetime) -> int:
    """Mail the owners and administrators whose month has reached its alert; once a month each. How many organisations were told."""
    month, told = f"{now.astimezone(UTC):%Y-%m}", 0
    for account in Account.objects.select_related("tenant").filter(~Q(alerted_month=month), alert_micros__isnull=False):
        spent = spent_this_month(account.tenant, now)
        if spent >= account.alert_micros and _first(account, month):
            told += _mail(account, spent, month)
    return told


def _first(account: Account, month: str) -> bool:
    """Claimed before the mail goes out: one that is lost is better than one every few minutes."""
    return bool(Account.objects.filter(pk=account.pk).exclude(alerted_month=month).update(alerted_month=month))


def _mail(account: Account, spent: int, month: str) -> int:
    roles = (Role.OWNER, Role.ADMIN)
    people = [member.user.email for member in account.tenant.memberships.filter(role__in=roles).select_related("user")]
    asked = money.shown(account.alert_micros or 0)
    text = (
        f"{account.tenant.name} has used {money.shown(spent)} in {month}, and you asked to be told at {asked}.\n\n"
        f"Nothing was stopped. The page {reverse('billing:account')} has both limits, {reverse('billing:usage')} what was used.\n"
    )
    log.info("spending_alert", tenant=account.tenant.public_id, spent_micros=spent)
    return send_mail(f"MARLaaS: {account.tenant.name} has used {money.shown(spent)} this month", text, None, people) if people else 0
