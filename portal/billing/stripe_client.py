"""The only door to Stripe: nothing else imports its SDK. Calls have a deadline; answers are plain records of what we need to know.

Idempotency keys: Stripe answers a repeated key with the first answer for 24 hours, a 500 included. So a key holds the hour; what must be
exact for longer has its own protection (a meter event's identifier, a session's credit by its top-up).
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from django.conf import settings

from portal.billing.stripe_records import (
    Billed,
    Catalogue,
    Forged,
    InvoiceLine,
    MoneyBack,
    Notice,
    Refused,
    Session,
    Subscribed,
    Unreachable,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its HTTP library complains about helpers that it can do without
    import stripe as sdk

if TYPE_CHECKING:
    from stripe import params
    from stripe._base_address import BaseAddresses
    from stripe._stripe_object import UntypedStripeObject

logging.getLogger("stripe").setLevel(logging.WARNING)  # it tells of every request

TIMEOUT_SECONDS = 20.0
RETRIES = 2
OLD_AFTER = timedelta(minutes=5)  # of a notice's signature
_Answer = TypeVar("_Answer")


class Stripe:
    """One account of Stripe's. Every method raises ``Unreachable`` or ``Refused``."""

    def __init__(self, *, key: str, webhook_secret: str, base: str = "", timeout_seconds: float = TIMEOUT_SECONDS, retries: int = RETRIES):
        addresses: BaseAddresses = {"api": base, "meter_events": base} if base else {}
        http = sdk.RequestsClient(timeout=timeout_seconds)
        self._sdk = sdk.StripeClient(key, base_addresses=addresses, max_network_retries=retries, http_client=http)
        self._webhook_secret = webhook_secret
        self._live = key.startswith(("sk_live_", "rk_live_"))
        self._catalogue: Catalogue | None = None

    # --- customers --------------------------------------------------------------------------------------------------------------

    def create_customer(self, *, tenant: str, name: str, email: str, now: datetime) -> str:
        wanted: params.CustomerCreateParams = {"name": name[:256], "metadata": {"tenant": tenant}}
        if email:
            wanted["email"] = email
        return self._call(lambda: self._sdk.v1.customers.create(wanted, _key("customer", tenant, now))).id

    def open_portal(self, *, customer: str, return_url: str) -> str:
        """The address of Stripe's Customer Portal, for a few minutes."""
        wanted: params.billing_portal.SessionCreateParams = {"customer": customer, "return_url": return_url}
        return self._call(lambda: self._sdk.v1.billing_portal.sessions.create(wanted)).url

    def change_plan(self, *, customer: str, subscription: str, price: str, return_url: str) -> str:
        """The page of the Customer Portal that shows what changing the plan to ``price`` costs, and does it when it is confirmed."""
        found = self._call(lambda: self._sdk.v1.subscriptions.retrieve(subscription))
        items: list[sdk.SubscriptionItem] = found["items"].data
        fee = next((item.id for item in items if item.price.recurring and item.price.recurring.usage_type == "licensed"), None)
        if fee is None:
            raise Refused(f"subscription {subscription} has no monthly fee", "no_fee")
        wanted: params.billing_portal.SessionCreateParams = {
            "customer": customer,
            "return_url": return_url,
            "flow_data": {
                "type": "subscription_update_confirm",
                "subscription_update_confirm": {"subscription": subscription, "items": [{"id": fee, "price": price, "quantity": 1}]},
            },
        }
        return self._call(lambda: self._sdk.v1.billing_portal.sessions.create(wanted)).url

    # --- usage ------------------------------------------------------------------------------------------------------------------

    def send_usage(self, *, meter: str, customer: str, quantity: int, at: datetime, identifier: str) -> None:
        """Returns when Stripe has it. The identifier alone makes it happen once: no idempotency key, which would repeat a 500."""
        if quantity <= 0:
            raise ValueError(f"{quantity} of {meter}: only what was used is told")
        wanted: params.billing.MeterEventCreateParams = {
            "event_name": meter,
            "payload": {"stripe_customer_id": customer, "value": str(quantity)},
            "timestamp": int(at.timestamp()),
            "identifier": identifier,
        }
        try:
            self._call(lambda: self._sdk.v1.billing.meter_events.create(wanted))
        except Refused as refusal:
            if not _is_duplicate(refusal):
                raise

    def used_in_hour(self, *, meter: str, customer: str, hour: datetime) -> int:
        """Stripe's own sum of what was told for the hour that begins at ``hour``."""
        return sum(self.used(meter=meter, customer=customer, start=hour, end=hour + timedelta(hours=1)).values())

    def used(self, *, meter: str, customer: str, start: datetime, end: datetime) -> dict[datetime, int]:
        """Hour → Stripe's sum. Both ends lie on full hours."""
        wanted: params.billing.MeterEventSummaryListParams = {
            "customer": customer,
            "start_time": int(start.timestamp()),
            "end_time": int(end.timestamp()),
            "value_grouping_window": "hour",
            "limit": 100,
        }
        meter_id = self.catalogue().meters[meter]
        found = self._call(lambda: list(self._sdk.v1.billing.meters.event_summaries.list(meter_id, wanted).auto_paging_iter()))
        return {_moment(summary.start_time): int(summary.aggregated_value) for summary in found if summary.aggregated_value}

    def catalogue(self) -> Catalogue:
        """Looked up once. Raises ``Refused`` when ``stripe_setup`` was never run."""
        if self._catalogue is None:
            meters = self._call(lambda: list(self._sdk.v1.billing.meters.list({"limit": 100, "status": "active"}).auto_paging_iter()))
            prices = self._call(lambda: self._sdk.v1.prices.list({"lookup_keys": [OVERAGE_KEY], "active": True})).data
            if not prices:
                raise Refused("Stripe knows no price of the overage yet: run manage.py stripe_setup", "not_set_up")
            self._catalogue = Catalogue(meters={meter.event_name: meter.id for meter in meters}, overage_price=prices[0].id)
        return self._catalogue

    def set_up(self, *, meters: dict[str, str], overage_meter: str, currency: str, micro_unit_minor: Decimal) -> list[str]:
        """Make the meters (name → words for people) and the price of the overage that are missing; what was made."""
        standing = self._call(lambda: list(self._sdk.v1.billing.meters.list({"limit": 100, "status": "active"}).auto_paging_iter()))
        ids, made = {meter.event_name: meter.id for meter in standing}, []
        for name, words in meters.items():
            if name not in ids:
                ids[name] = self._create_meter(name, words)
                made.append(f"meter {name}")
        if not self._call(lambda: self._sdk.v1.prices.list({"lookup_keys": [OVERAGE_KEY], "active": True})).data:
            self._create_overage_price(ids[overage_meter], currency, micro_unit_minor)
            made.append(f"price {OVERAGE_KEY}")
        self._catalogue = None
        return made

    def add_late(
        self,
        *,
        customer: str,
        invoice: str,
        micros: int,
        unit_minor: Decimal,
        currency: str,
        words: str,
        period: tuple[datetime, datetime],
        now: datetime,
    ) -> str:
        """Put ``micros`` of overage that ``invoice`` lacks onto the customer's next invoice; the item's id. Once per invoice: what stands
        there is looked for first, since a key protects for a day only.
        """
        listed = self._sdk.v1.invoice_items
        standing = self._call(lambda: list(listed.list({"customer": customer, "limit": 100}).auto_paging_iter()))
        for item in standing:
            if _noted(item.metadata, LATE_OF) == invoice:
                return item.id
        wanted: params.InvoiceItemCreateParams = {
            "customer": customer,
            "currency": currency.lower(),
            "quantity": micros,
            "unit_amount_decimal": unit_minor,
            "description": words,
            "period": {"start": int(period[0].timestamp()), "end": int(period[1].timestamp())},
            "metadata": {LATE_OF: invoice},
        }
        return self._call(lambda: listed.create(wanted, _key("late", invoice, now))).id

    # --- buying -----------------------------------------------------------------------------------------------------------------

    def sell_credit(
        self, *, customer: str, reference: str, amount_minor: int, currency: str, words: str, back: str, now: datetime
    ) -> Session:
        """A Checkout for credit. The customer returns to ``back``, paid or not."""
        wanted: params.checkout.SessionCreateParams = {
            "mode": "payment",
            "customer": customer,
            "client_reference_id": reference,
            "line_items": [
                {
                    "quantity": 1,
                    "price_data": {"currency": currency.lower(), "unit_amount": amount_minor, "product_data": {"name": words}},
                }
            ],
            "success_url": back,
            "cancel_url": back,
        }
        return _session(self._call(lambda: self._sdk.v1.checkout.sessions.create(wanted, _key("credit", reference, now))))

    def sell_plan(self, *, customer: str, reference: str, price: str, back: str) -> Session:
        """A Checkout for a plan: its monthly fee, and what is used beyond credit."""
        wanted: params.checkout.SessionCreateParams = {
            "mode": "subscription",
            "customer": customer,
            "client_reference_id": reference,
            "line_items": [{"price": price, "quantity": 1}, {"price": self.catalogue().overage_price}],
            "success_url": back,
            "cancel_url": back,
        }
        return _session(self._call(lambda: self._sdk.v1.checkout.sessions.create(wanted)))

    # --- what stands there now --------------------------------------------------------------------------------------------------

    def session(self, session_id: str) -> Session:
        return _session(self._call(lambda: self._sdk.v1.checkout.sessions.retrieve(session_id)))

    def subscription(self, subscription_id: str) -> Subscribed:
        return _subscription(self._call(lambda: self._sdk.v1.subscriptions.retrieve(subscription_id)))

    def subscriptions(self, customer: str) -> list[Subscribed]:
        """All of a customer's, ended ones too."""
        listed = self._sdk.v1.subscriptions
        found = self._call(lambda: list(listed.list({"customer": customer, "status": "all", "limit": 100}).auto_paging_iter()))
        return [_subscription(one) for one in found]

    def invoice(self, invoice_id: str) -> Billed:
        return self._billed(self._call(lambda: self._sdk.v1.invoices.retrieve(invoice_id, {"expand": ["payments"]})))

    def invoices(self, since: datetime) -> list[str]:
        """Ids of those that were made since then."""
        wanted: params.InvoiceListParams = {"created": {"gte": int(since.timestamp())}, "limit": 100}
        return [one.id for one in self._call(lambda: list(self._sdk.v1.invoices.list(wanted).auto_paging_iter()))]

    def refund(self, refund_id: str) -> MoneyBack:
        return _money_back(self._call(lambda: self._sdk.v1.refunds.retrieve(refund_id)))

    def dispute(self, dispute_id: str) -> MoneyBack:
        return _money_back(self._call(lambda: self._sdk.v1.disputes.retrieve(dispute_id)))

    # --- notices ----------------------------------------------------------------------------------------------------------------

    def read_notice(self, body: bytes, signature: str, now: datetime) -> Notice:
        """Raises ``Forged``, also for one of another account or of the other mode."""
        try:
            sdk.WebhookSignature.verify_header(body, signature, self._webhook_secret)
            signed_at = int(dict(part.split("=", 1) for part in signature.split(","))["t"])
            raw = json.loads(body)
        except (sdk.SignatureVerificationError, ValueError, KeyError, RecursionError) as error:
            raise Forged(str(error).splitlines()[0][:200]) from None
        if abs(now.timestamp() - signed_at) > OLD_AFTER.total_seconds():
            raise Forged("it was signed too long ago, or ahead of time")
        return self._notice(raw)

    def notices(self, since: datetime) -> Iterator[Notice]:
        """What happened since then, at most 30 days back, oldest first."""
        wanted: params.EventListParams = {"created": {"gte": int(since.timestamp())}, "limit": 100}
        listed = self._call(lambda: list(self._sdk.v1.events.list(wanted).auto_paging_iter()))
        for event in sorted(listed, key=lambda one: one.created):
            yield self._notice(event.to_dict())

    def _notice(self, raw: Any) -> Notice:
        if not isinstance(raw, dict) or raw.get("object") != "event":
            raise Forged("it is no event")
        if raw.get("livemode") is not self._live:
            raise Forged("it is of the other mode: test and live are kept apart")
        if raw.get("account"):
            raise Forged("it is of another account")
        try:
            about = raw["data"]["object"]
            return Notice(
                id=str(raw["id"]), kind=str(raw["type"]), object_id=str(about.get("id") or ""), created_at=_moment(int(raw["created"]))
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Forged("it has not the shape of an event") from None

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _call(self, call: Callable[[], _Answer]) -> _Answer:
        try:
            return call()
        except sdk.RateLimitError as error:
            raise Unreachable(f"Stripe asks for patience: {error}", _retry_after(error)) from None
        except (sdk.APIConnectionError, sdk.IdempotencyError) as error:
            raise Unreachable(f"Stripe did not answer: {type(error).__name__}: {error}") from None
        except (sdk.AuthenticationError, sdk.PermissionError) as error:
            raise Refused(f"Stripe does not let us: {error}; look at MARLAAS_STRIPE_KEY", "key") from None
        except sdk.StripeError as error:
            if error.http_status is None or error.http_status >= 500 or error.http_status in (409, 429):
                raise Unreachable(f"Stripe answered {error.http_status}: {error}", _retry_after(error)) from None
            raise Refused(str(error), error.code or "") from None

    def _create_meter(self, name: str, words: str) -> str:
        wanted: params.billing.MeterCreateParams = {
            "display_name": words,
            "event_name": name,
            "default_aggregation": {"formula": "sum"},
            "customer_mapping": {"type": "by_id", "event_payload_key": "stripe_customer_id"},
            "value_settings": {"event_payload_key": "value"},
        }
        return self._call(lambda: self._sdk.v1.billing.meters.create(wanted)).id

    def _create_overage_price(self, meter: str, currency: str, micro_unit_minor: Decimal) -> None:
        wanted: params.PriceCreateParams = {
            "currency": currency.lower(),
            "unit_amount_decimal": micro_unit_minor,
            "lookup_key": OVERAGE_KEY,
            "recurring": {"interval": "month", "usage_type": "metered", "meter": meter},
            "product_data": {"name": "Usage beyond credit (micro-units)"},
        }
        self._call(lambda: self._sdk.v1.prices.create(wanted))

    def _billed(self, found: sdk.Invoice) -> Billed:
        lines = self._call(lambda: list(found.lines.auto_paging_iter()))
        paid = [one.payment.payment_intent for one in (found.payments.data if found.payments else [])]
        return Billed(
            id=found.id,
            customer=_id(found.customer),
            number=found.number or "",
            status=found.status or "draft",
            currency=found.currency.upper(),
            total_minor=found.total,
            paid_minor=found.amount_paid,
            failed=found.attempted and found.status in ("open", "uncollectible"),
            page_url=found.hosted_invoice_url or "",
            pdf_url=found.invoice_pdf or "",
            created_at=_moment(found.created),
            payment=next((_id(payment) for payment in paid if payment), ""),
            lines=tuple(_line(line) for line in lines),
        )


OVERAGE_KEY = "marlaas_overage"
LATE_OF = "marlaas_late_of"  # on an invoice item: the invoice that was closed without this usage


def connect() -> Stripe | None:
    """The account of this installation's settings; None without a key: credit is then granted by operators."""
    if not settings.STRIPE_KEY:
        return None
    return _connected(settings.STRIPE_KEY, settings.STRIPE_WEBHOOK_SECRET, settings.STRIPE_API_BASE)


@lru_cache(maxsize=4)
def _connected(key: str, webhook_secret: str, base: str) -> Stripe:
    return Stripe(key=key, webhook_secret=webhook_secret, base=base, retries=0 if base else RETRIES)


def _key(what: str, whose: str, now: datetime) -> sdk.RequestOptions:
    return {"idempotency_key": f"{what}-{whose}-{now.astimezone(UTC):%Y%m%d%H}"}


def _is_duplicate(refusal: Refused) -> bool:
    return refusal.code == "duplicate_meter_event" or "already exists with identifier" in str(refusal)


def _retry_after(error: sdk.StripeError) -> float | None:
    told = {name.lower(): value for name, value in (error.headers or {}).items()}.get("retry-after", "")
    return float(told) if str(told).isdigit() else None


def _session(found: sdk.checkout.Session) -> Session:
    return Session(
        id=found.id,
        url=found.url or "",
        reference=found.client_reference_id or "",
        mode=found.mode,
        status=found.status or "",
        paid=found.payment_status == "paid",
        amount_minor=found.amount_total or 0,
        currency=(found.currency or "").upper(),
        customer=_id(found.customer),
        payment=_id(found.payment_intent),
        subscription=_id(found.subscription),
    )


def _subscription(found: sdk.Subscription) -> Subscribed:
    # "items" is a method of the SDK's objects too, so the field is asked for by its name.
    items: list[sdk.SubscriptionItem] = found["items"].data
    return Subscribed(
        id=found.id,
        customer=_id(found.customer),
        status=found.status,
        prices=tuple(item.price.id for item in items),
        period_start=_moment(min(item.current_period_start for item in items)) if items else None,
        period_end=_moment(max(item.current_period_end for item in items)) if items else None,
        cancel_at_period_end=found.cancel_at_period_end,
        created_at=_moment(found.created),
    )


def _line(found: sdk.InvoiceLineItem) -> InvoiceLine:
    details = found.pricing.price_details if found.pricing else None
    parent = found.parent.subscription_item_details if found.parent else None
    return InvoiceLine(
        text=found.description or "",
        amount_minor=found.amount,
        quantity=found.quantity or 0,
        price=_id(details.price) if details else "",
        proration=bool(parent and parent.proration),
        start=_moment(found.period.start),
        end=_moment(found.period.end),
        late_of=_noted(found.metadata, LATE_OF),
    )


def _money_back(found: sdk.Refund | sdk.Dispute) -> MoneyBack:
    return MoneyBack(
        id=found.id,
        payment=_id(found.payment_intent),
        amount_minor=found.amount,
        currency=found.currency.upper(),
        status=found.status or "",
        created_at=_moment(found.created),
    )


def _noted(metadata: UntypedStripeObject[str] | None, name: str) -> str:
    return str(metadata.to_dict().get(name, "")) if metadata else ""


def _id(thing: Any) -> str:
    """Stripe gives an id, or the object when it was asked to."""
    return "" if thing is None else thing if isinstance(thing, str) else str(thing.id)


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
