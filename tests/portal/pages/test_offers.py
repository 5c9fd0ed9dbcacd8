"""Nobody is offered what they would be refused: each page's forms and links against the table of rights."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from django.urls import Resolver404, resolve

from portal.jobs.models import Job, State
from tenants import tokens
from tenants.models import Membership, Role
from tests.portal.history import play
from tests.portal.tenancy_table import RIGHTS, rights
from tests.portal.test_tenancy import THIRD_PARTY, fill, patterns
from tests.portal.test_tenancy_table import things_of
from tests.portal.world import World

_RANK = {"read": 0, "person": 0, "me": 0, "public": 0, "private": 0, "write": 1, "self": 2, "mine": 0, "admin": 2, "owner": 3}
_RANKS = {"viewer": 0, "member": 1, "admin": 2}
_ANYBODYS = {"jobs:bulk"}  # whoever may look compares; what viewers may not do has no button (test_viewers)
# Opened, they tell a viewer that there is nothing to make; nobody is led to them for that.
_MAKING = {"jobs:new", "datasets:new", "datasets:generate", "datasets:import", "rewards:new", "tokens:new"}


class Offers(HTMLParser):
    """(method, address) of each form and link of a page; "" is the page's own."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a" and given.get("href"):
            self.found.append(("get", given["href"] or ""))
        if tag == "form":
            self.found.append(((given.get("method") or "get").lower(), given.get("action") or ""))


def offered(html: str, page: str) -> Iterator[tuple[str, str, str]]:
    """(method, address, right) of what leads to a route of ours."""
    parser, table = Offers(), rights()
    parser.feed(html)
    for method, address in parser.found:
        if address.startswith("#") or method == "dialog":
            continue
        path = urlsplit(address).path or page
        try:
            match = resolve(path)
        except Resolver404:
            continue
        right = "write" if match.view_name in _MAKING else table.get((method, match.route))
        if right is not None and match.view_name not in _ANYBODYS:
            yield method, address, right


@pytest.mark.parametrize("role", _RANKS)
def test_no_page_offers_what_would_be_refused(world: World, role: str) -> None:
    person = {"viewer": world.vera, "member": world.bob, "admin": world.bob}[role]
    Membership.objects.filter(user=person).update(role=Role(role))
    tokens.issue(world.sums, world.alice, "live", datetime.now(UTC))
    names = things_of(world)
    job = Job.objects.get(public_id=names["jobs"]["public_id"])
    play(job, steps=3)
    Job.objects.filter(pk=job.pk).update(state=State.SUCCEEDED)
    world.job()  # an open one
    client, wrong, looked = world.client(person), set(), 0
    for route, pattern in patterns():
        if route.startswith((*THIRD_PARTY, "api/", "v1/", "console/")) or "get:read" not in RIGHTS.get(route, ""):
            continue
        page = fill(pattern, route, names[route.split("/")[0]])
        answer = client.get(page)
        if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
            continue
        looked += 1
        wrong |= {(route, *offer) for offer in offered(answer.content.decode(), page) if _RANK[offer[2]] > _RANKS[role]}
    assert not wrong, "\n".join(" ".join(one) for one in sorted(wrong))
    assert looked > 30
