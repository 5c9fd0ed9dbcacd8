"""What people and programs get when the database is away, and when something else broke."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection

from tests.portal.world import World


@contextmanager
def every_query(error: Exception) -> Iterator[None]:
    def fail(*_: Any) -> None:
        raise error

    with connection.execute_wrapper(fail):
        yield


def test_a_page_says_what_it_waits_for_and_comes_back_by_itself(world: World) -> None:
    client = world.client(world.alice)
    client.raise_request_exception = False
    with every_query(OperationalError("the connection is closed")):
        page = client.get("/jobs/")
    assert (page.status_code, page["Retry-After"]) == (503, "3")
    assert 'http-equiv="refresh"' in page.content.decode() and "The database does not answer" in page.content.decode()


@pytest.mark.parametrize("path", ["/api/v1/jobs/", "/v1/fine_tuning/jobs"])
def test_programs_are_told_to_come_again(world: World, path: str) -> None:
    api = world.api(world.alice)
    api.raise_request_exception = False
    with every_query(OperationalError("the connection is closed")):
        answer = api.get(path)
    assert (answer.status_code, answer["Retry-After"], answer.json()["error"]["code"]) == (503, "3", "database_away")


def test_any_other_fault_is_a_500_in_the_caller_s_own_form(world: World) -> None:
    client, api = world.client(world.alice), world.api(world.alice)
    client.raise_request_exception = api.raise_request_exception = False
    with every_query(ValueError("a bug")):
        page, answer = client.get("/jobs/"), api.get("/api/v1/jobs/")
    assert (page.status_code, answer.status_code) == (500, 500)
    assert "Something broke" in page.content.decode()
    assert answer.json()["error"]["type"] == "server_error" and "a bug" not in answer.content.decode()


@pytest.mark.parametrize(
    ("path", "kind"), [("/api/v1/jobs/?limit=%00", "invalid_request"), ("/v1/fine_tuning/jobs?limit=%00", "invalid_request_error")]
)
def test_an_address_with_a_nul_character_is_refused_in_the_caller_s_own_form(world: World, path: str, kind: str) -> None:
    answer = world.api(world.alice).get(path)
    assert (answer.status_code, answer.json()["error"]["type"], answer.json()["error"]["code"]) == (400, kind, "invalid")
    assert world.client(world.alice).get("/jobs/?page=%00")["Content-Type"] == "text/plain"
