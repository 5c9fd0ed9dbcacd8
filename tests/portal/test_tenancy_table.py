"""Every route, every method, every kind of caller: what the table says is what happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from tenants import tokens
from tenants.models import Membership, Role, Tenant, User
from tests.portal.tenancy_table import PAGES, RIGHTS, rights
from tests.portal.test_tenancy import THIRD_PARTY, fill, patterns, things
from tests.portal.world import PASSWORD, World

_RANK = {"read": 0, "write": 1, "self": 2, "admin": 2, "owner": 3, "mine": 3, "private": 3}
# What a call needs to be more than a refused form.
BODIES: dict[str, dict[str, Any]] = {
    "api/v1/organisation/": {"confirm": "Sums", "name": "Mine"},
    "api/v1/^members/(?P<public_id>[a-z0-9_]{1,40})/$": {"role": "viewer"},
    "api/v1/^invitations/$": {"email": "new@example.org"},
    "api/v1/^tokens/$": {"name": "new"},
    "api/v1/^rewards/$": {"name": "new", "grader": {"type": "math"}},
    "api/v1/billing/checkout/": {"micros": 50_000_000},
    "api/v1/billing/plan/": {"plan": "pro"},
    "api/v1/organisation/retention/": {"completions_days": 30},
    "api/v1/billing/limits/": {"stop_micros": 1_000_000},
    "settings/": {"name": "Mine"},
    "settings/members/": {"email": "new@example.org", "role": "viewer"},
    "settings/members/<str:member_id>/role/": {"role": "viewer"},
    "settings/delete/": {"confirm": "Sums"},
    "settings/tokens/new/": {"name": "new", "days": "7", "scopes": ["jobs:read"]},
    "settings/tokens/<str:token_id>/rotate/": {"hours": "1"},
    "rewards/new/": {"name": "new", "type": "math"},
}
# The one who asks may have it, but it is not there: no version was committed yet, and no such model or file is known.
_ABSENT = (
    *(
        "adapter",
        "evaluation",
        "rollouts/",
        "bundles/",
        "checkpoints/<int:version>",
        "checkpoints/(?P<version>",
        "deliveries/",
        "datasets/<str:public_id>/lengths",
    ),
    *("models/<path", "files/<str", "fine_tuning/jobs/<str:public_id>/checkpoints"),
)


def table_routes() -> set[str]:
    return {route for route, _ in patterns() if not route.startswith(THIRD_PARTY)}


def test_each_route_is_in_the_table_and_nothing_else() -> None:
    found, listed = table_routes(), set(RIGHTS)
    assert (sorted(found - listed), sorted(listed - found)) == ([], [])


@dataclass(frozen=True, kw_only=True)
class Caller:
    """``rank``: the role's; None for who has none here. ``pages`` None: it has no browser."""

    name: str
    api: Client
    pages: Client | None
    rank: int | None = None
    shut: int = 0  # what everything of the tenant answers instead

    def expects(self, right: str, route: str) -> Callable[[int], bool]:
        api, named = route.startswith(("api/", "v1/")), "<" in route
        if right == "public":
            return lambda status: status not in (401, 403, 404)
        if right in ("guess", "nothing"):
            return lambda status: status == 404
        if right == "machine":
            return lambda status: status in (400, 401, 403, 404)
        if self.name == "anonymous":
            return (lambda status: status == 401) if api else (lambda status: status == 302)
        if self.shut == 401:
            return lambda status: status == 401
        if right in ("operator", "own"):
            return lambda status: status == 404
        if right in ("person", "me"):
            return lambda status: status < 400 or (self.rank is None and status == 404)
        if self.shut:
            return lambda status: status == self.shut
        if self.rank is None:
            return (lambda status: status == 404) if named else _let_in
        if self.rank < _RANK[right]:
            refused = (404,) if right == "private" else (403, 404) if any(word in route for word in _ABSENT) else (403,)
            return lambda status: status in refused
        return (lambda status: _let_in(status) or status == 404) if any(word in route for word in _ABSENT) else _let_in


def _let_in(status: int) -> bool:
    """Past the door: answered, or refused for what was sent."""
    return status < 400 or status in (400, 409, 415, 422)


def bearer(tenant: Tenant, user: User, *, revoked: bool = False, scopes: tuple[str, ...] = tokens.SCOPES) -> Client:
    now = datetime.now(UTC)
    token, text = tokens.issue(tenant, user, "t", now, scopes=scopes)
    if revoked:
        tokens.revoke(token, now)
    return Client(headers={"Authorization": f"Bearer {text}"})


def caller(world: World, name: str) -> Caller:
    if name == "anonymous":
        return Caller(name=name, api=Client(), pages=Client())
    if name == "stranger":
        return Caller(name=name, api=bearer(world.other, world.charlie), pages=world.client(world.charlie))
    if name in ("revoked", "scopeless"):
        shut = {"revoked": 401, "scopeless": 403}[name]
        api = bearer(world.sums, world.alice, revoked=name == "revoked", scopes=() if name == "scopeless" else tokens.SCOPES)
        return Caller(name=name, api=api, pages=None, rank=3, shut=shut)
    person = {"owner": world.alice, "admin": world.bob, "member": world.bob, "viewer": world.vera, "suspended": world.alice}[name]
    if name == "admin":
        Membership.objects.filter(user=person).update(role=Role.ADMIN)
    rank = {"owner": 3, "admin": 2, "member": 1, "viewer": 0, "suspended": 3}[name]
    shut = 403 if name == "suspended" else 0
    return Caller(name=name, api=bearer(world.sums, person), pages=world.client(person), rank=rank, shut=shut)


CALLERS = ("owner", "admin", "member", "viewer", "stranger", "anonymous", "revoked", "scopeless", "suspended")


@pytest.mark.parametrize("name", CALLERS)
def test_everybody_gets_what_the_table_says(world: World, name: str) -> None:
    names = things_of(world)
    who = caller(world, name)
    if name == "suspended":
        Tenant.objects.filter(pk=world.sums.pk).update(suspended_at=datetime.now(UTC))
    known, wrong = {route: pattern for route, pattern in patterns()}, {}
    for (method, route), right in rights().items():
        client = who.api if route.startswith(("api/", "v1/")) else who.pages
        if client is None:
            continue
        status = ask(client, method, fill(known[route], route, names[noun_of(route)]), BODIES.get(route, {}))
        if not who.expects(right, route)(status):
            wrong[f"{method} {route}"] = (right, status)
    assert wrong == {}


@pytest.mark.parametrize("name", ["viewer", "member", "admin"])
def test_a_role_is_asked_for_before_what_was_sent_is_read(world: World, name: str) -> None:
    """Else who may not do it learns from an answer about the form what there is to do, and what there is."""
    names, who, known, wrong = things_of(world), caller(world, name), dict(patterns()), {}
    for (method, route), right in rights().items():
        if method == "get" or _RANK.get(right, 0) <= (who.rank or 0):
            continue
        client = who.api if route.startswith(("api/", "v1/")) else who.pages
        path = fill(known[route], route, names[noun_of(route)])
        told = [ask(client, method, path, body) for body in ({}, {"email": "no", "kept": "7", "name": "", "x": "y" * 300}, b"[[[")]
        if set(told) - {403, 404}:
            wrong[f"{method} {route}"] = told
    assert wrong == {}


def test_each_page_that_changes_something_asks_for_the_tables_role_first_of_all() -> None:
    """What an action would ask is not enough: where there is nothing left to do, it is not reached."""
    wanted = {"write": Role.MEMBER, "admin": Role.ADMIN, "owner": Role.OWNER}
    posts = {route: wanted[right] for (method, route), right in rights().items() if method == "post" and route in PAGES and right in wanted}
    del posts["jobs/bulk/"]  # viewers compare with it what they marked; for all else it asks
    known = dict(patterns())
    asked = {route: getattr(known[route].callback, "role_to_post", None) for route in posts}
    assert asked == posts


def test_a_viewer_is_refused_a_sample_that_is_there_already(world: World) -> None:
    assert world.client(world.bob).post("/sample/").status_code == 302
    assert world.client(world.vera).post("/sample/").status_code == 403


def ask(client: Client, method: str, path: str, body: dict[str, Any] | bytes) -> int:
    """The status; what the call changed is undone."""
    with transaction.atomic():
        as_json = isinstance(body, bytes) or path.startswith(("/api/", "/v1/", "/csp", "/stripe"))
        more: dict[str, Any] = {} if method == "get" else {"data": body, **({"content_type": "application/json"} if as_json else {})}
        answer = getattr(client, method)(path, **more)
        if answer.streaming and not answer.is_async:  # an endless one is left alone
            b"".join(answer.streaming_content)
        transaction.set_rollback(True)
    return answer.status_code


def noun_of(route: str) -> str:
    return route.removeprefix("api/").removeprefix("v1/").lstrip("^").split("/")[0]


def things_of(world: World) -> dict[str, dict[str, str]]:
    """As ``things``, with a member whom nobody else needs."""

    class Names(dict):
        def __missing__(self, noun: str) -> dict[str, str]:
            return {}

    eve = Membership.objects.create(tenant=world.sums, user=User.objects.create_user("eve@example.org", PASSWORD))
    found = Names(things(world))
    found["settings"] |= {"member_id": eve.public_id}
    found["members"] = {"public_id": eve.public_id}
    return found
