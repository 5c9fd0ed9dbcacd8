"""What an address may say: each operation takes the parameters that its schema lists, and no other."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import resolve

from portal.api.parameters import asked_by
from portal.api.reference_views import schema
from tests.portal.api.test_api import V1, error
from tests.portal.world import World, additions

OPERATIONS = [
    (path, method, {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"})
    for path, operations in schema()["paths"].items()
    if path.startswith("/api/v1/")
    for method, operation in operations.items()
]


def view_of(path: str, method: str):
    func = resolve(re.sub(r"{\w+}", "1", path)).func
    view = func.cls(**func.initkwargs)
    view.action = getattr(func, "actions", {}).get(method)
    return view


@pytest.mark.parametrize(("path", "method", "listed"), OPERATIONS, ids=[f"{method} {path}" for path, method, _ in OPERATIONS])
def test_a_call_takes_what_the_schema_lists(path, method, listed):
    assert set(asked_by(view_of(path, method), method.upper())) == listed


def test_a_mistyped_name_is_refused_with_those_there_are(world: World) -> None:
    refused = error(world.api(world.bob).get(f"{V1}/jobs/", {"state": "running", "archived": "true"}), 400)
    assert refused["problems"] == [{"field": "state", "message": "this call knows no such parameter; it takes archived, cursor, limit"}]


def test_one_value_is_not_chosen_among_two(world: World) -> None:
    refused = error(world.api(world.bob).get(f"{V1}/jobs/?limit=1&limit=2"), 400)
    assert (refused["param"], refused["message"]) == ("limit", "limit: is given twice")


def test_what_may_be_given_several_times_is_taken(world: World) -> None:
    jobs = [world.job().public_id, world.job().public_id]
    assert world.api(world.bob).get(f"{V1}/jobs/compare/", {"job": jobs}).status_code == 200


def test_a_form_does_not_choose_among_two_files(world: World) -> None:
    refused = error(world.api(world.bob).post(f"{V1}/datasets/", {"name": "sums", "file": [additions(40), additions(41)]}), 400)
    assert refused["problems"] == [{"field": "file", "message": "is given twice"}]
    assert world.sums.datasets.count() == 0


def test_a_change_takes_no_parameters_in_its_address(world: World) -> None:
    refused = error(world.api(world.bob).post(f"{V1}/rewards/?dry=1", {}, content_type="application/json"), 400)
    assert refused["message"] == "dry: this call knows no such parameter; it takes none"


def test_who_may_not_call_hears_that_first(world: World) -> None:
    assert world.api(world.bob, scopes=["datasets:read"]).get(f"{V1}/jobs/?ghost=1").status_code == 403
    assert Client().get(f"{V1}/jobs/?ghost=1").status_code == 401


def test_openais_clients_may_send_what_is_none_of_ours(world: World) -> None:
    assert world.api(world.bob).get("/v1/models?ghost=1").status_code == 200
