"""What we need to know of Stripe's answers, as plain records, and what can go wrong. Amounts are in the currency's smallest unit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


class Unreachable(Exception):
    """Stripe does not answer, or asks for patience: the same call may work later. It may have been done all the same."""

    def __init__(self, message: str, retry_after_seconds: float | None = None):
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message)


class Refused(Exception):
    """Stripe will not do it, now or later, unless something else changes. ``code``: Stripe's word for why."""

    def __init__(self, message: str, code: str = ""):
        self.code = code
        super().__init__(message)


class Forged(Exception):
    """A notice that is not Stripe's, or not for us, or too old."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """``object_id``: what it is about. ``paid`` and the like are not in it: the object is fetched anew."""

    id: str
    kind: str
    object_id: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """A Checkout. ``reference``: our id of what is bought."""

    id: str
    url: str
    reference: str
    mode: str
    status: str
    paid: bool
    amount_minor: int
    currency: str
    customer: str
    payment: str
    subscription: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Subscribed:
    id: str
    customer: str
    status: str
    prices: tuple[str, ...]
    period_start: datetime | None
    period_end: datetime | None
    cancel_at_period_end: bool
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class InvoiceLine:
    """``amount_minor``: rounded by Stripe, once. ``quantity``: of an overage line, whole micro-units. ``late_of``: of late overage, the
    invoice that was closed without it.
    """

    text: str
    amount_minor: int
    quantity: int
    price: str
    proration: bool
    start: datetime
    end: datetime
    late_of: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Billed:
    """An invoice. ``failed``: a payment was tried, and it is not paid."""

    id: str
    customer: str
    number: str
    status: str
    currency: str
    total_minor: int
    paid_minor: int
    failed: bool
    page_url: str
    pdf_url: str
    created_at: datetime
    payment: str
    lines: tuple[InvoiceLine, ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class MoneyBack:
    """A refund or a dispute of a payment."""

    id: str
    payment: str
    amount_minor: int
    currency: str
    status: str
    created_at: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class Catalogue:
    """What must stand at Stripe before usage can be told: meter name → id, and the price of one micro-unit of overage."""

    meters: dict[str, str]
    overage_price: str
