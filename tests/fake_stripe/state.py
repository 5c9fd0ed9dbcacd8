"""What stands at the fake Stripe, and what its people do there: pay, not pay, cancel, dispute. Each change is an event."""

from __future__ import annotations

import copy
import itertools
import json
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

SHAPES = json.loads((Path(__file__).parent / "shapes.json").read_text())
MONTH = timedelta(days=30)


class Refusal(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, code: str = "", kind: str = "invalid_request_error"):
        self.status, self.code, self.kind = status, code, kind
        super().__init__(message)


class State:
    """``pays``: whether a customer's payments succeed. ``outgoing``: events that no notice was given of yet."""

    def __init__(self, clock: Callable[[], datetime]):
        self.clock = clock
        self.objects: dict[str, dict[str, Any]] = {}
        self.usage: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.outgoing: list[dict[str, Any]] = []
        self.pays: dict[str, bool] = defaultdict(lambda: True)
        self._numbers = itertools.count(1)

    @property
    def now(self) -> int:
        return int(self.clock().timestamp())

    def of(self, kind: str) -> list[dict[str, Any]]:
        """All objects of a kind, oldest first."""
        return [found for found in self.objects.values() if found["object"] == kind]

    def get(self, thing_id: str, kind: str | None = None) -> dict[str, Any]:
        found = self.objects.get(thing_id)
        if found is None or (kind and found["object"] != kind):
            raise Refusal(404, f"No such object: '{thing_id}'", "resource_missing")
        return found

    def make(self, shape: str, prefix: str, **values: Any) -> dict[str, Any]:
        blank = {name: None if isinstance(value, int | str) else value for name, value in copy.deepcopy(SHAPES[shape]).items()}
        made = {**blank, "object": SHAPES[shape]["object"], "livemode": False, "created": self.now, "metadata": {}}
        made |= {"id": f"{prefix}_{next(self._numbers):06d}", **values}
        self.objects[made["id"]] = made
        return made

    def happen(self, kind: str, about: dict[str, Any]) -> dict[str, Any]:
        event = {
            **SHAPES["event"],
            "id": f"evt_{next(self._numbers):06d}",
            "type": kind,
            "created": self.now,
            "data": {"object": copy.deepcopy(about)},
        }
        self.events.append(event)
        self.outgoing.append(event)
        return event

    # --- usage ------------------------------------------------------------------------------------------------------------------

    def used(self, customer: str, meter: str, start: int = 0, end: int = 2**62) -> int:
        """The meter's sum over [start, end)."""
        return sum(
            int(event["payload"]["value"])
            for event in self.usage
            if event["event_name"] == meter and event["payload"]["stripe_customer_id"] == customer and start <= event["timestamp"] < end
        )

    def customer(self, tenant: str) -> dict[str, Any] | None:
        """The one that a tenant's public id is written on."""
        return next((found for found in self.of("customer") if found["metadata"].get("tenant") == tenant), None)

    # --- Checkout ---------------------------------------------------------------------------------------------------------------

    def complete(self, session_id: str, *, pays: bool = True) -> None:
        """Somebody goes through Checkout. Not ``pays``: by a method that settles later."""
        session = self.get(session_id, "checkout.session")
        if session["status"] != "open":
            raise AssertionError(f"the session is {session['status']}")
        session |= {"status": "complete", "payment_status": "paid" if pays else "unpaid", "url": None}
        if session["mode"] == "subscription":
            session["subscription"] = self._subscribe(session)["id"]
        else:
            session["payment_intent"] = f"pi_{next(self._numbers):06d}"
        self.happen("checkout.session.completed", session)

    def settle(self, session_id: str, *, pays: bool) -> None:
        session = self.get(session_id, "checkout.session")
        session["payment_status"] = "paid" if pays else "unpaid"
        self.happen(f"checkout.session.async_payment_{'succeeded' if pays else 'failed'}", session)

    def expire(self, session_id: str) -> None:
        session = self.get(session_id, "checkout.session")
        session |= {"status": "expired", "url": None}
        self.happen("checkout.session.expired", session)

    # --- subscriptions and invoices ---------------------------------------------------------------------------------------------

    def end_period(self, subscription_id: str) -> dict[str, Any]:
        """The next period begins; the invoice is a draft until ``finalize``: late usage still counts."""
        subscription = self.get(subscription_id, "subscription")
        items = subscription["items"]["data"]
        start, end = items[0]["current_period_start"], items[0]["current_period_end"]
        for item in items:
            item |= {"current_period_start": end, "current_period_end": end + int(MONTH.total_seconds())}
        self.happen("customer.subscription.updated", subscription)
        draft = self._invoice(subscription, start, end, "subscription_cycle")
        for item in self.of("invoiceitem"):
            if item["customer"] == draft["customer"] and item["invoice"] is None:
                self._take(draft, item)
        self.happen("invoice.created", draft)
        return draft

    def finalize(self, invoice_id: str) -> dict[str, Any]:
        """Usage is added up, each line rounded once, and the payment is tried."""
        invoice = self.get(invoice_id, "invoice")
        subscription = self.get(invoice["subscription"], "subscription")
        for item in subscription["items"]["data"]:
            self._add_line(invoice, item, invoice["period_start"], invoice["period_end"], fee=invoice["period_end"])
        self._total(invoice)
        invoice |= {
            "status": "open",
            "number": f"M-{len(self.of('invoice')):04d}",
            "hosted_invoice_url": f"https://pay.example/{invoice_id}",
        }
        self.happen("invoice.finalized", invoice)
        self.try_to_collect(invoice_id)
        return invoice

    def try_to_collect(self, invoice_id: str) -> bool:
        """One attempt at the payment; whether it succeeded."""
        invoice = self.get(invoice_id, "invoice")
        subscription = self.get(invoice["subscription"], "subscription")
        invoice |= {"attempted": True, "attempt_count": (invoice["attempt_count"] or 0) + 1}
        paid = self.pays[invoice["customer"]]
        if paid:
            payment = {"type": "payment_intent", "payment_intent": f"pi_{next(self._numbers):06d}"}
            invoice |= {"status": "paid", "amount_paid": invoice["total"], "amount_remaining": 0}
            invoice["payments"]["data"] = [{"id": f"inpay_{invoice_id}", "object": "invoice_payment", "payment": payment}]
        self.happen("invoice.paid" if paid else "invoice.payment_failed", invoice)
        if subscription["status"] != (status := "active" if paid else "past_due"):
            subscription["status"] = status
            self.happen("customer.subscription.updated", subscription)
        return paid

    def change_plan(self, subscription_id: str, price_id: str, *, prorated_minor: int) -> dict[str, Any]:
        """The fee's price changes in mid-period; the difference is invoiced at once, as a proration."""
        subscription = self.get(subscription_id, "subscription")
        fee = next(item for item in subscription["items"]["data"] if item["price"]["recurring"]["usage_type"] == "licensed")
        fee["price"] = self.get(price_id, "price")
        self.happen("customer.subscription.updated", subscription)
        invoice = self._invoice(subscription, self.now, self.now, "subscription_update")
        self._line(invoice, fee, prorated_minor, 1, self.now, fee["current_period_end"], proration=True)
        self._total(invoice)
        invoice |= {"status": "open", "number": f"M-{len(self.of('invoice')):04d}"}
        self.try_to_collect(invoice["id"])
        return invoice

    def cancel(self, subscription_id: str) -> None:
        subscription = self.get(subscription_id, "subscription")
        subscription |= {"status": "canceled", "ended_at": self.now, "canceled_at": self.now}
        self.happen("customer.subscription.deleted", subscription)

    # --- money back -------------------------------------------------------------------------------------------------------------

    def refund(self, payment: str, amount: int, status: str = "succeeded") -> dict[str, Any]:
        made = self.make("refund", "re", payment_intent=payment, amount=amount, currency=self._currency(payment), status=status)
        self.happen("refund.created", made)
        return made

    def fail_refund(self, refund_id: str) -> None:
        refund = self.get(refund_id, "refund")
        refund["status"] = "failed"
        self.happen("refund.failed", refund)

    def dispute(self, payment: str, amount: int) -> dict[str, Any]:
        made = self.make("dispute", "dp", payment_intent=payment, amount=amount, currency=self._currency(payment), status="needs_response")
        self.happen("charge.dispute.created", made)
        return made

    def close_dispute(self, dispute_id: str, *, won: bool) -> None:
        dispute = self.get(dispute_id, "dispute")
        dispute["status"] = "won" if won else "lost"
        self.happen("charge.dispute.closed", dispute)

    # --- inside -----------------------------------------------------------------------------------------------------------------

    def _currency(self, payment: str) -> str:
        return next((s["currency"] for s in self.of("checkout.session") if s["payment_intent"] == payment), "usd")

    def _subscribe(self, session: dict[str, Any]) -> dict[str, Any]:
        start, end = self.now, self.now + int(MONTH.total_seconds())
        subscription = self.make(
            "subscription", "sub", customer=session["customer"], status="active", cancel_at_period_end=False, currency=session["currency"]
        )
        items = [
            self.make("subscription_item", "si", price=self.get(line["price"], "price"), subscription=subscription["id"])
            | {"current_period_start": start, "current_period_end": end}
            for line in session["line_items"]
        ]
        for item in items:
            self.objects[item["id"]] = item
        subscription["items"] = {"object": "list", "data": items, "has_more": False, "url": "/v1/subscription_items"}
        self.happen("customer.subscription.created", subscription)
        first = self._invoice(subscription, start, start, "subscription_create")
        for item in items:
            if item["price"]["recurring"]["usage_type"] == "licensed":
                self._add_line(first, item, start, start, fee=start)
        self._total(first)
        first |= {"status": "open", "number": f"M-{len(self.of('invoice')):04d}"}
        self.try_to_collect(first["id"])
        return subscription

    def _invoice(self, subscription: dict[str, Any], start: int, end: int, why: str) -> dict[str, Any]:
        made = self.make("invoice", "in", customer=subscription["customer"], currency=subscription["currency"], billing_reason=why)
        made |= {"status": "draft", "attempted": False, "amount_paid": 0, "total": 0, "subscription": subscription["id"]}
        made |= {"period_start": start, "period_end": end, "payments": {"object": "list", "data": [], "has_more": False}}
        made["lines"] = {"object": "list", "data": [], "has_more": False, "url": f"/v1/invoices/{made['id']}/lines"}
        return made

    def _add_line(self, invoice: dict[str, Any], item: dict[str, Any], start: int, end: int, *, fee: int) -> None:
        price = item["price"]
        if price["recurring"]["usage_type"] == "licensed":
            period_end = fee + int(MONTH.total_seconds())
            self._line(invoice, item, self._rounded(1, price), 1, fee, period_end)
            return
        meter = self.get(price["recurring"]["meter"], "billing.meter")["event_name"]
        quantity = self.used(invoice["customer"], meter, start, end)
        self._line(invoice, item, self._rounded(quantity, price), quantity, start, end)

    def _take(self, invoice: dict[str, Any], item: dict[str, Any]) -> None:
        """What waited for the next invoice becomes a line of it, rounded once."""
        quantity, period = int(item["quantity"]), {name: int(at) for name, at in item["period"].items()}
        line = self.make("line_item", "il", amount=self._rounded(quantity, item), currency=invoice["currency"], quantity=quantity)
        line |= {"description": item["description"], "period": period, "metadata": item["metadata"], "invoice": invoice["id"]}
        line["pricing"] = {"type": "price_details", "price_details": {"price": f"price_{item['id']}", "product": "prod_2"}}
        details = {"invoice_item": item["id"], "proration": False}
        line["parent"] = {"type": "invoice_item_details", "invoice_item_details": details, "subscription_item_details": None}
        item["invoice"] = invoice["id"]
        invoice["lines"]["data"].append(line)

    def name(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):06d}"

    def _rounded(self, quantity: int, price: dict[str, Any]) -> int:
        return int((quantity * Decimal(price["unit_amount_decimal"])).quantize(Decimal(1), ROUND_HALF_UP))

    def _line(
        self, invoice: dict[str, Any], item: dict[str, Any], amount: int, quantity: int, start: int, end: int, *, proration: bool = False
    ) -> None:
        line = self.make("line_item", "il", amount=amount, currency=invoice["currency"], quantity=quantity, invoice=invoice["id"])
        line |= {"description": item["price"]["nickname"] or "Usage", "period": {"start": start, "end": end}}
        line["pricing"] = {"type": "price_details", "price_details": {"price": item["price"]["id"], "product": "prod_1"}}
        details = {"subscription_item": item["id"], "proration": proration, "subscription": invoice["subscription"]}
        line["parent"] = {"type": "subscription_item_details", "subscription_item_details": details, "invoice_item_details": None}
        invoice["lines"]["data"].append(line)

    def _total(self, invoice: dict[str, Any]) -> None:
        total = sum(line["amount"] for line in invoice["lines"]["data"])
        invoice |= {"total": total, "subtotal": total, "amount_due": total, "amount_remaining": total}
