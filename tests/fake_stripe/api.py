"""The fake's HTTP interface as functions from a request's values to an answer, with the rules that Stripe documents."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from tests.fake_stripe.state import Refusal, State

KNOWN_FOR = int(timedelta(hours=24).total_seconds())
OLDEST, NEWEST = int(timedelta(days=35).total_seconds()), int(timedelta(minutes=5).total_seconds())


class Api:
    def __init__(self, state: State):
        self.state = state
        self._identifiers: dict[str, int] = {}

    def answer(self, method: str, path: str, values: dict[str, Any]) -> dict[str, Any]:
        for wanted, pattern, handler, allowed in ROUTES:
            if wanted == method and (match := re.fullmatch(pattern, path)):
                if unknown := values.keys() - allowed:
                    raise Refusal(400, f"Received unknown parameter: {sorted(unknown)[0]}", "parameter_unknown")
                return handler(self, values, *match.groups())
        raise Refusal(404, f"Unrecognized request URL ({method}: {path})")

    # --- customers and meters ---------------------------------------------------------------------------------------------------

    def create_customer(self, values: dict[str, Any]) -> dict[str, Any]:
        made = self.state.make("customer", "cus", **{"metadata": {}, "name": None, "email": None, "balance": 0, **values})
        self.state.happen("customer.created", made)
        return made

    def create_meter(self, values: dict[str, Any]) -> dict[str, Any]:
        if any(meter["event_name"] == values["event_name"] for meter in self.state.of("billing.meter")):
            raise Refusal(400, "An active meter with this event_name exists already")
        return self.state.make("billing.meter", "mtr", status="active", **values)

    def create_event(self, values: dict[str, Any]) -> dict[str, Any]:
        now, payload = self.state.now, values.get("payload") or {}
        meter = next((m for m in self.state.of("billing.meter") if m["event_name"] == values.get("event_name")), None)
        if meter is None:
            raise Refusal(400, f"No active meter found for event name {values.get('event_name')}", "no_meter")
        if self.state.objects.get(payload.get("stripe_customer_id"), {}).get("object") != "customer":
            raise Refusal(400, "No such customer in payload[stripe_customer_id]", "resource_missing")
        if not re.fullmatch(r"[0-9]+", payload.get("value", "")) or int(payload["value"]) == 0:
            raise Refusal(400, "payload[value] must be a whole number above 0")
        stamp, identifier = int(values.get("timestamp", now)), values.get("identifier", "")
        if not now - OLDEST <= stamp <= now + NEWEST:
            raise Refusal(400, "The timestamp must be within the past 35 days and not more than 5 minutes in the future")
        if not 0 < len(identifier) <= 100:
            raise Refusal(400, "identifier must have 1 to 100 characters")
        if identifier in self._identifiers and now - self._identifiers[identifier] <= KNOWN_FOR:
            raise Refusal(400, f"An event already exists with identifier {identifier}.")
        self._identifiers[identifier] = now
        event = {"object": "billing.meter_event", "created": now, "livemode": False, **values, "timestamp": stamp}
        self.state.usage.append(event)
        return event

    def summaries(self, values: dict[str, Any], meter_id: str) -> dict[str, Any]:
        meter, start, end = self.state.get(meter_id, "billing.meter"), int(values["start_time"]), int(values["end_time"])
        window = 3600 if values.get("value_grouping_window") == "hour" else end - start
        if start % min(window, 3600) or end % min(window, 3600):
            raise Refusal(400, "start_time and end_time must align with the window")
        sums = [(at, self.state.used(values["customer"], meter["event_name"], at, at + window)) for at in range(start, end, window)]
        found = [
            {"id": f"mtrusg_{at}", "object": "billing.meter_event_summary", "aggregated_value": value, "start_time": at}
            | {"end_time": at + window, "livemode": False, "meter": meter_id}
            for at, value in reversed(sums)
            if value
        ]
        return self._page(found, values, f"/v1/billing/meters/{meter_id}/event_summaries")

    # --- prices, Checkout, portal -----------------------------------------------------------------------------------------------

    def create_price(self, values: dict[str, Any]) -> dict[str, Any]:
        recurring = {"interval": "month", "interval_count": 1, "usage_type": "licensed", "meter": None, **values.pop("recurring", {})}
        words = values.pop("product_data", {}).get("name")
        exact = values.get("unit_amount_decimal") or values.get("unit_amount")
        return self.state.make(
            "price", "price", **{**values, "recurring": recurring, "unit_amount_decimal": exact, "active": True, "nickname": words}
        )

    def list_prices(self, values: dict[str, Any]) -> dict[str, Any]:
        keys = values.get("lookup_keys")
        found = [price for price in self.state.of("price") if keys is None or price["lookup_key"] in keys]
        return self._page(found, values, "/v1/prices")

    def create_session(self, values: dict[str, Any]) -> dict[str, Any]:
        self.state.get(values["customer"], "customer")
        lines, mode = values["line_items"], values["mode"]
        amount, currency = 0, "usd"
        for line in lines:
            price = self.state.get(line["price"], "price") if "price" in line else line["price_data"]
            metered = price.get("recurring", {}).get("usage_type") == "metered" if isinstance(price.get("recurring"), dict) else False
            if metered and "quantity" in line:
                raise Refusal(400, "a metered price takes no quantity")
            currency = price["currency"]
            amount += 0 if metered else int(price["unit_amount"]) * int(line["quantity"])
        if mode == "payment" and not 50 <= amount <= 99_999_999:
            raise Refusal(400, "The amount must be at least 50 and at most 99999999", "amount_too_small")
        shown = {"amount_total": amount, "amount_subtotal": amount, "currency": currency, "payment_status": "unpaid", "status": "open"}
        made = self.state.make("checkout.session", "cs_test", **{**values, **shown})
        made["url"] = f"https://checkout.stripe.com/c/pay/{made['id']}"
        return made

    def open_portal(self, values: dict[str, Any]) -> dict[str, Any]:
        self.state.get(values["customer"], "customer")
        if flow := values.get("flow_data"):
            asked = flow[flow["type"]]
            subscription = self.state.get(asked["subscription"], "subscription")
            if subscription["customer"] != values["customer"] or subscription["status"] == "canceled":
                raise Refusal(400, "The subscription is not this customer's, or has ended")
            for item in asked["items"]:
                self.state.get(item["price"], "price")
                if item["id"] not in [one["id"] for one in subscription["items"]["data"]]:
                    raise Refusal(404, f"No such subscription item: '{item['id']}'", "resource_missing")
        made = self.state.make("billing_portal.session", "bps", **values)
        made["url"] = f"https://billing.stripe.com/p/session/{made['id']}"
        return made

    def create_item(self, values: dict[str, Any]) -> dict[str, Any]:
        """Waits for the customer's next invoice."""
        self.state.get(values["customer"], "customer")
        if int(values["quantity"]) < 0 or len(values["unit_amount_decimal"].partition(".")[2]) > 12:
            raise Refusal(400, "quantity must not be below 0, unit_amount_decimal has at most 12 decimal places")
        item = {"id": self.state.name("ii"), "object": "invoiceitem", "date": self.state.now, "invoice": None, "metadata": {}, **values}
        self.state.objects[item["id"]] = item
        return item

    def list_items(self, values: dict[str, Any]) -> dict[str, Any]:
        found = [one for one in self.state.of("invoiceitem") if one["customer"] == values["customer"]]
        return self._page(found[::-1], values, "/v1/invoiceitems")

    # --- reading ----------------------------------------------------------------------------------------------------------------

    def retrieve(self, values: dict[str, Any], thing_id: str) -> dict[str, Any]:
        found = dict(self.state.get(thing_id))
        if found["object"] == "invoice" and "payments" not in values.get("expand", []):
            found.pop("payments")
        return found

    def list_meters(self, values: dict[str, Any]) -> dict[str, Any]:
        return self._page(self.state.of("billing.meter"), values, "/v1/billing/meters")

    def list_subscriptions(self, values: dict[str, Any]) -> dict[str, Any]:
        found = [one for one in self.state.of("subscription") if one["customer"] == values["customer"]]
        return self._page(found[::-1], values, "/v1/subscriptions")

    def list_invoices(self, values: dict[str, Any]) -> dict[str, Any]:
        since = int(values.get("created", {}).get("gte", 0))
        return self._page([one for one in self.state.of("invoice") if one["created"] >= since][::-1], values, "/v1/invoices")

    def list_lines(self, values: dict[str, Any], invoice_id: str) -> dict[str, Any]:
        return self._page(self.state.get(invoice_id, "invoice")["lines"]["data"], values, f"/v1/invoices/{invoice_id}/lines")

    def list_events(self, values: dict[str, Any]) -> dict[str, Any]:
        """At most 30 days back, the newest first."""
        since = max(int(values.get("created", {}).get("gte", 0)), self.state.now - 30 * 86400)
        return self._page([event for event in self.state.events if event["created"] >= since][::-1], values, "/v1/events")

    def _page(self, found: list[dict[str, Any]], values: dict[str, Any], url: str) -> dict[str, Any]:
        limit, after = int(values.get("limit", 10)), values.get("starting_after")
        if not 1 <= limit <= 100:
            raise Refusal(400, "limit must lie between 1 and 100")
        ids = [one["id"] for one in found]
        start = ids.index(after) + 1 if after else 0
        return {"object": "list", "data": found[start : start + limit], "has_more": len(found) > start + limit, "url": url}


_PAGE = {"limit", "starting_after", "expand"}
_SALE = {"mode", "customer", "client_reference_id", "line_items", "success_url", "cancel_url"}
_ID = r"([\w]+)"
ROUTES: list[tuple[str, str, Any, set[str]]] = [
    ("POST", "/v1/customers", Api.create_customer, {"name", "email", "metadata"}),
    (
        "POST",
        "/v1/billing/meters",
        Api.create_meter,
        {"display_name", "event_name", "default_aggregation", "customer_mapping", "value_settings"},
    ),
    ("GET", "/v1/billing/meters", Api.list_meters, _PAGE | {"status"}),
    (
        "GET",
        f"/v1/billing/meters/{_ID}/event_summaries",
        Api.summaries,
        _PAGE | {"customer", "start_time", "end_time", "value_grouping_window"},
    ),
    ("POST", "/v1/billing/meter_events", Api.create_event, {"event_name", "payload", "timestamp", "identifier"}),
    ("POST", "/v1/prices", Api.create_price, {"currency", "unit_amount", "unit_amount_decimal", "lookup_key", "recurring", "product_data"}),
    ("GET", "/v1/prices", Api.list_prices, _PAGE | {"lookup_keys", "active"}),
    ("POST", "/v1/checkout/sessions", Api.create_session, _SALE),
    ("POST", "/v1/billing_portal/sessions", Api.open_portal, {"customer", "return_url", "flow_data"}),
    (
        "POST",
        "/v1/invoiceitems",
        Api.create_item,
        {"customer", "currency", "quantity", "unit_amount_decimal", "description", "period", "metadata"},
    ),
    ("GET", "/v1/invoiceitems", Api.list_items, _PAGE | {"customer", "pending"}),
    ("GET", "/v1/subscriptions", Api.list_subscriptions, _PAGE | {"customer", "status"}),
    ("GET", "/v1/invoices", Api.list_invoices, _PAGE | {"created"}),
    ("GET", f"/v1/invoices/{_ID}/lines", Api.list_lines, _PAGE),
    ("GET", "/v1/events", Api.list_events, _PAGE | {"created"}),
    ("GET", f"/v1/(?:checkout/sessions|subscriptions|invoices|refunds|disputes|customers)/{_ID}", Api.retrieve, {"expand"}),
]
