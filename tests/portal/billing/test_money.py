"""Amounts at Stripe's door: its smallest units, currencies without cents, and invoices whose lines add up."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portal.billing import catalogue, money
from tests.fake_stripe.state import State
from tests.portal.billing.till import Clock

CURRENCIES = {"USD": 2, "EUR": 2, "JPY": 0, "KRW": 0, "VND": 0, "KWD": 3, "BHD": 3}
RULES = settings(max_examples=60, deadline=None, derandomize=True)


@RULES
@given(amount=st.integers(-(10**12), 10**12), currency=st.sampled_from(list(CURRENCIES)))
def test_minor_units_and_back_lose_nothing(amount: int, currency: str) -> None:
    amount = amount * 10 if CURRENCIES[currency] == 3 else amount  # of these Stripe takes tens only
    micros = money.from_minor(amount, currency)
    assert money.to_minor(micros, currency) == amount
    assert micros == Decimal(amount).scaleb(6 - CURRENCIES[currency])


@pytest.mark.parametrize(("micros", "currency"), [(1, "USD"), (9_999, "USD"), (500_000, "JPY"), (1_000, "KWD"), (-1, "EUR")])
def test_what_the_currency_cannot_say_is_never_rounded_away(micros: int, currency: str) -> None:
    with pytest.raises(ValueError, match="more decimal places"):
        money.to_minor(micros, currency)


@pytest.mark.parametrize(("currency", "places"), CURRENCIES.items())
def test_a_million_micro_units_are_one_unit_of_any_currency(currency: str, places: int) -> None:
    assert catalogue.micro_unit_minor(currency) * 10**6 == 10**places


@RULES
@given(
    overage=st.lists(st.integers(1, 10**11), max_size=40),
    fee=st.integers(0, 10**7),
    currency=st.sampled_from(list(CURRENCIES)),
)
def test_the_lines_of_any_month_add_up_to_its_invoice(overage: list[int], fee: int, currency: str) -> None:
    """And each is within half a smallest unit of what the ledger says, whatever was used."""
    state = State(Clock())
    invoice = _invoice(state, overage, fee, currency)
    lines = invoice["lines"]["data"]
    assert sum(line["amount"] for line in lines) == invoice["total"]
    (extra,) = [line for line in lines if line["quantity"] == sum(overage) and line["description"] == "Overage"]
    half = Decimal(10 ** (6 - CURRENCIES[currency])) / 2
    assert abs(money.from_minor(extra["amount"], currency) - sum(overage)) <= half


def _invoice(state: State, overage: list[int], fee: int, currency: str) -> dict[str, Any]:
    customer = state.make("customer", "cus")["id"]
    meter = state.make("billing.meter", "mtr", event_name="overage")["id"]
    exact = format(catalogue.micro_unit_minor(currency), "f")
    metered = {"usage_type": "metered", "meter": meter}
    extra = state.make("price", "price", unit_amount_decimal=exact, recurring=metered, nickname="Overage", currency=currency.lower())
    plan = state.make("price", "price", unit_amount_decimal=str(fee), recurring={"usage_type": "licensed"}, nickname="Plan")
    lines = [{"price": plan["id"]}, {"price": extra["id"]}]
    session = state.make("checkout.session", "cs_test", mode="subscription", customer=customer, line_items=lines, status="open")
    session["currency"] = currency.lower()
    state.complete(session["id"])
    payload = [{"stripe_customer_id": customer, "value": str(quantity)} for quantity in overage]
    state.usage += [{"event_name": "overage", "timestamp": state.now, "payload": one} for one in payload]
    return state.finalize(state.end_period(session["subscription"])["id"])
