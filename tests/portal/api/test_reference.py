"""The API reference: every call of the schema is in it, in words, and can be found."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from portal.api.reference import groups, matching
from portal.api.reference_views import schema
from tests.portal.world import World

DOCS = "/api/docs/"


def test_every_call_is_there_under_its_noun_and_says_what_it_does() -> None:
    found = groups(schema(), "https://ml.example.org")
    calls = [one for group in found for one in group.operations]
    assert len(calls) == sum(len(set(path) & {"get", "post", "patch", "delete"}) for path in schema()["paths"].values()) >= 81
    assert [one.path for one in calls if len(one.words) < 8] == []
    assert all(one.path.split("/")[3] == group.noun for group in found for one in group.operations)
    assert len({one.id for one in calls}) == len(calls)


def test_no_call_speaks_in_the_words_of_a_class() -> None:
    told = " ".join(one.words for group in groups(schema(), "") for one in group.operations)
    assert "relation" not in told
    assert "APIView" not in told


def test_what_a_token_needs_stands_beside_it() -> None:
    needs = {f"{one.method} {one.path}": (one.scope, one.role) for group in groups(schema(), "") for one in group.operations}
    assert needs["POST /api/v1/jobs/"] == ("jobs:write", "")
    assert needs["DELETE /api/v1/organisation/"] == ("organisation:write", "owner")
    assert needs["GET /api/v1/audit/"] == ("audit:read", "admin")
    assert needs["GET /api/v1/me/"] == ("", "")
    assert needs["GET /api/v1/prices/"] == needs["POST /api/v1/tokens/report/"] == (None, "")


def test_fields_within_fields_are_told_with_their_limits() -> None:
    fields = {field.name: field for field in next(iter(matching(groups(schema(), ""), "POST group_size seed"))).operations[0].body}
    assert fields["dataset"].required
    assert fields["rollout.group_size"].kind == "integer"
    assert fields["rollout.group_size"].limits == "at least 2, at most 256, 8 unless given"


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("reward-runs stop", {"/api/v1/reward-runs/{public_id}/stop/"}),
        ("BILLING:WRITE checkout", {"/api/v1/billing/checkout/"}),
        ("no such thing", set()),
    ],
)
def test_it_is_searched_word_by_word(text: str, paths: set[str]) -> None:
    assert {one.path for group in matching(groups(schema(), ""), text) for one in group.operations} == paths


def test_it_opens_for_everybody_under_the_strict_policy(world: World) -> None:
    for client in (Client(), world.client(world.vera)):
        answer = client.get(DOCS)
        page = answer.content.decode()
        assert "unsafe" not in answer["Content-Security-Policy"]
        assert page.count('class="panel operation"') >= 81
        assert not re.search(r"https?://(?!testserver)[a-z]", page.replace("http://www.w3.org", ""))
    assert 'aria-label="Main"' in page  # the way back


def test_a_search_shows_what_it_found_and_no_more(db: None) -> None:
    page = Client().get(DOCS, {"q": "<checkout>"}).content.decode()
    assert "No call says “&lt;checkout&gt;”" in page
    page = Client().get(DOCS, {"q": "checkout"}).content.decode()
    assert page.count('class="panel operation"') == 1
