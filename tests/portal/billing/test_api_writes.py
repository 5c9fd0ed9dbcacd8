"""/api/v1/billing as programs use it to buy, to change the plan and to limit what is spent."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from portal.billing import ledger
from portal.billing.models import Account, TopUp
from portal.billing.stripe_client import Stripe
from tenants import tokens
from tenants.models import AuditEntry, Membership, Role
from tests.fake_stripe import FakeStripe
from tests.portal.billing.till import Clock, deliver, plan, subscribe
from tests.portal.world import NOW, World

WRITE = ("billing:read", "billing:write")


@pytest.fixture
def api(world: World) -> Client:
    return world.api(world.alice, scopes=WRITE)


def post(client: Client, what: str, body: Any = None, key: str = "", **more: Any) -> Any:
    headers = {"Idempotency-Key": key} if key else {}
    return client.post(f"/api/v1/billing/{what}/", body or {}, content_type="application/json", headers=headers, **more)


def limit(client: Client, **values: Any) -> Any:
    return client.patch("/api/v1/billing/limits/", values, content_type="application/json")


def error(answer: Any) -> tuple[int, str, str]:
    told = answer.json()["error"]
    return answer.status_code, told["param"], told["code"]


def test_credit_is_bought_once_under_one_key(api: Client, stripe: Stripe, fake: FakeStripe) -> None:
    first, again = (post(api, "checkout", {"micros": 50_000_000}, key="k") for _ in range(2))
    assert first.status_code == 201 and first.json()["url"].startswith("https://checkout.stripe.com/")
    assert again.json() == first.json() and again["Idempotent-Replayed"] == "true"
    assert (TopUp.objects.get().micros, len(fake.of("checkout.session"))) == (50_000_000, 1)
    assert error(post(api, "checkout", {"micros": 60_000_000}, key="k"))[0] == 409
    session = fake.of("checkout.session")[0]
    assert session["success_url"].endswith("/billing/") and session["amount_total"] == 5000


@pytest.mark.parametrize(
    ("body", "param"),
    [({}, "micros"), ({"micros": "x"}, "micros"), ({"micros": 1}, "amount"), ({"micros": 50_000_000, "currency": "EUR"}, "currency")],
)
def test_what_cannot_be_bought_is_refused_by_its_field(api: Client, stripe: Stripe, body: dict[str, Any], param: str) -> None:
    assert error(post(api, "checkout", body))[:2] == (400, param)
    assert not TopUp.objects.exists()


def test_without_stripe_each_page_is_refused_with_what_to_do(api: Client) -> None:
    for what, body in (("checkout", {"micros": 50_000_000}), ("portal", {})):
        answer = post(api, what, body)
        assert error(answer)[0::2] == (409, "payment_unavailable") and "ask your operator" in answer.json()["error"]["message"]
    assert api.get("/api/v1/billing/").json()["plans"] == []


def test_a_plan_is_taken_and_then_changed_on_stripes_own_pages(
    api: Client, world: World, stripe: Stripe, fake: FakeStripe, clock: Clock
) -> None:
    plan(fake, "basic")
    assert post(api, "plan", {"plan": "basic"}).json()["url"].startswith("https://checkout.stripe.com/")
    subscription = subscribe(stripe, fake, world, clock)
    deliver(fake, stripe, clock())
    assert api.get("/api/v1/billing/").json()["plans"] == ["basic", "pro"]
    assert error(post(api, "plan", {"plan": "pro"}))[:2] == (409, "plan")
    assert post(api, "plan", {"plan": "basic"}).json()["url"].startswith("https://billing.stripe.com/")
    asked = fake.of("billing_portal.session")[-1]["flow_data"]["subscription_update_confirm"]
    assert asked["subscription"] == subscription and asked["items"][0]["price"] == fake.of("price")[-2]["id"]
    assert error(post(api, "plan", {"plan": "standard"}))[:2] == (400, "plan")


def test_the_portal_is_opened(api: Client, stripe: Stripe) -> None:
    answer = post(api, "portal", key="k")
    assert answer.status_code == 201 and answer.json()["url"].startswith("https://billing.stripe.com/")
    assert answer["Cache-Control"] == "no-store"


def test_alert_and_stop_are_two_switches_that_leave_each_other_alone(api: Client, world: World) -> None:
    assert limit(api, alert_micros=5_000_000).json() == {"alert_micros": 5_000_000, "stop_micros": None}
    assert limit(api, stop_micros=9_000_000).json() == {"alert_micros": 5_000_000, "stop_micros": 9_000_000}
    Account.objects.filter(tenant=world.sums).update(alerted_month="2026-01")
    assert limit(api, stop_micros=None).json() == {"alert_micros": 5_000_000, "stop_micros": None}
    assert Account.objects.get(tenant=world.sums).alerted_month == "2026-01"  # only a changed alert tells anew
    limit(api, alert_micros=6_000_000)
    assert Account.objects.get(tenant=world.sums).alerted_month == ""
    assert AuditEntry.objects.filter(action="billing.limits").count() == 4


@pytest.mark.parametrize("name", ["alert_micros", "stop_micros"])
@pytest.mark.parametrize("value", [0, -1, "x", 10**16])
def test_a_limit_that_is_none_is_refused_by_its_name(api: Client, world: World, name: str, value: Any) -> None:
    ledger.account_of(world.sums, NOW)
    assert error(limit(api, **{name: value}))[:2] == (400, name)
    assert Account.objects.get(tenant=world.sums).stop_micros is None


def test_it_takes_the_scope_and_the_role(world: World, stripe: Stripe) -> None:
    reader = world.api(world.alice, scopes=("billing:read",))
    Membership.objects.filter(user=world.vera).update(role=Role.MEMBER)
    member = world.api(world.vera, scopes=WRITE)
    for client in (reader, member):
        assert post(client, "checkout", {"micros": 50_000_000}).status_code == 403
        assert post(client, "plan", {"plan": "pro"}).status_code == 403
        assert post(client, "portal").status_code == 403
        assert limit(client, stop_micros=1).status_code == 403
    assert not TopUp.objects.exists()


def test_a_new_token_has_the_scope_only_when_it_is_chosen(world: World) -> None:
    assert "billing:write" not in tokens.DEFAULT_SCOPES and "billing:read" in tokens.DEFAULT_SCOPES


def test_the_schema_tells_of_it(client: Client) -> None:
    paths = client.get("/api/schema/?format=json").json()["paths"]
    for what, method in (("checkout", "post"), ("plan", "post"), ("portal", "post"), ("limits", "patch")):
        assert {"400", "403"} <= paths[f"/api/v1/billing/{what}/"][method]["responses"].keys()
    assert "Idempotency-Key" in str(paths["/api/v1/billing/checkout/"]["post"]["parameters"])
