"""Charlie, a stranger, gets 404 on every URL of Alice's things: the URLconf itself is walked, so a new page cannot be forgotten."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from portal.jobs.models import Job
from tenants import tokens
from tests.portal.world import NOW, World

THIRD_PARTY = ("admin/", "accounts/")
NAMED = {
    *("public_id", "version", "token_id", "upload_id", "probe_id", "sheet_id", "run_id", "member_id", "invitation_id", "secret"),
    *("file_id", "model", "row", "sample", "delivery", "session"),
}


def patterns(resolver: URLResolver | None = None, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for entry in (resolver or get_resolver()).url_patterns:
        route = prefix + str(entry.pattern)
        if isinstance(entry, URLResolver):
            yield from patterns(entry, route)
        else:
            yield route, entry


def owned_routes() -> list[tuple[str, URLPattern]]:
    """Our routes that name a thing."""
    ours = [(route, pattern) for route, pattern in patterns() if not route.startswith(THIRD_PARTY)]
    return [(route, pattern) for route, pattern in ours if pattern.pattern.regex.groupindex]


def fill(pattern: URLPattern, route: str, names: dict[str, str]) -> str:
    """The route's path with each parameter filled in, whatever syntax it is written in."""
    import re

    filled = re.sub(r"<(?:\w+:)?(\w+)>", lambda m: names[m[1]], re.sub(r"\(\?P<(\w+)>[^()]*\)", r"<\1>", route))
    return "/" + filled.replace("^", "").replace("$", "").replace("\\Z", "").replace("/?", "/")


def things(world: World) -> dict[str, dict[str, str]]:
    """What Alice has, by the first word of the routes that show it."""
    token, _ = tokens.issue(world.sums, world.alice, "x", NOW)
    places = {"version": "0", "row": "0", "sample": "0"}
    named = {"datasets": world.dataset(), "rewards": world.reward(), "jobs": world.job()}
    filled = {noun: {"public_id": thing.public_id, **places} for noun, thing in named.items()}
    filled["datasets"]["upload_id"] = world.upload().public_id
    filled["rewards"] |= {"sheet_id": world.sheet().public_id, "run_id": world.lab_run().public_id}
    filled["reward-runs"] = {"public_id": world.lab_run().public_id}
    filled["rewards"]["probe_id"] = world.probe().public_id
    filled["playground"] = filled["jobs"]
    filled["files"] = {"file_id": named["datasets"].public_id}
    filled["fine_tuning"], filled["models"] = filled["jobs"], {"model": f"{named['jobs'].public_id}@0"}
    filled["probes"] = {"public_id": world.probe().public_id}
    filled["notifications"] = {"public_id": world.webhook().public_id, "delivery": "1"}
    filled["webhooks"] = filled["deliveries"] = filled["notifications"]
    filled["console"] = {"public_id": world.sums.public_id}
    member = world.sums.memberships.get(user=world.bob)
    invited = world.invitation()
    filled["settings"] = {"token_id": token.token_id, "member_id": member.public_id, "invitation_id": invited.public_id, "session": "1"}
    filled["join"] = {"invitation_id": invited.public_id, "secret": "guessed"}
    filled["members"], filled["invitations"] = {"public_id": member.public_id}, {"public_id": invited.public_id}
    filled["tokens"] = {"token_id": token.token_id}
    return {**filled, "switch": {"public_id": world.sums.public_id}}


def statuses(client: Client, world: World, methods: tuple[str, ...] = ("get", "post")) -> dict[tuple[str, str], int]:
    names = things(world)
    found = {}
    for route, pattern in owned_routes():
        noun = route.removeprefix("api/").removeprefix("v1/").lstrip("^").split("/")[0]
        for method in methods:
            found[method, route] = getattr(client, method)(fill(pattern, route, names[noun])).status_code
    return found


def test_every_parameter_of_every_route_is_known_here() -> None:
    used = {name for _, pattern in owned_routes() for name in pattern.pattern.regex.groupindex}
    assert used <= NAMED, used - NAMED
    assert len(owned_routes()) >= 12


def test_a_stranger_gets_404_everywhere(world: World) -> None:
    found = statuses(world.client(world.charlie), world)
    assert {key: status for key, status in found.items() if status not in (404, 405)} == {}


def test_a_stranger_with_a_token_gets_404_everywhere(world: World) -> None:
    found = {key: status for key, status in statuses(world.api(world.charlie), world).items() if "api/" in key[1]}
    assert {key: status for key, status in found.items() if status not in (404, 405)} == {}
    assert len(found) >= 10


def test_a_member_is_not_shut_out(world: World) -> None:
    found = statuses(world.client(world.bob), world, ("get",))
    opened = [key for key, status in found.items() if status == 200]
    assert len(opened) >= 6, found


def test_nobody_sees_anything_without_logging_in(world: World) -> None:
    found = statuses(Client(), world)
    assert set(found.values()) <= {302, 401, 403, 404, 405}, found


@pytest.mark.parametrize("path", ["/api/v1/jobs/", "/api/v1/datasets/", "/api/v1/rewards/"])
def test_lists_show_a_stranger_only_his_own(world: World, path: str) -> None:
    things(world)
    assert world.api(world.charlie).get(path).json()["results"] == []


def test_a_strangers_things_cannot_be_used(world: World) -> None:
    order = {**world.order(world.charlie), "dataset": world.dataset().public_id}
    answer = world.api(world.charlie).post("/api/v1/jobs/", order, content_type="application/json")
    assert answer.json()["error"]["param"] == "dataset"
    assert not Job.objects.exists()


def test_a_token_of_one_tenant_does_not_open_the_persons_other_tenant(world: World) -> None:
    from tenants.actions import create_tenant

    second = create_tenant(world.alice, "Second")
    job = world.job(world.charlie)
    assert world.api(world.alice, second).get(f"/api/v1/jobs/{job.public_id}/").status_code == 404
    mine = Job.objects.get(pk=job.pk)
    assert mine.tenant == world.other


def test_views_reach_tenants_things_through_the_tenant_only() -> None:
    """``Job.objects`` in a view would be the first leak: only ``.none()`` is allowed there."""
    modules = [*Path("portal").rglob("views.py"), *Path("portal").rglob("forms.py"), Path("portal/api/views.py")]
    assert len(modules) >= 6
    assert {str(path): uses for path in modules if (uses := list(_managers(ast.parse(path.read_text()))))} == {}


def _managers(tree: ast.AST) -> Iterator[str]:
    allowed: set[int] = set()
    for node in ast.walk(tree):
        inner: Any = node.value if isinstance(node, ast.Attribute) and node.attr == "none" else None
        if isinstance(inner, ast.Attribute) and inner.attr == "objects":
            allowed.add(id(inner))
        if isinstance(node, ast.Attribute) and node.attr in ("objects", "_default_manager", "_base_manager") and id(node) not in allowed:
            yield ast.unparse(node)
