"""deploy/roles.sql on a PostgreSQL of its own, as compose runs it: with the passwords in the environment."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from tests.support import postgres

pytestmark = pytest.mark.postgres
ROLES = ("marlaas_owner", "marlaas_app", "marlaas_operator")


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.running() as server:
        postgres.make_roles(server, server.url, password="it's; x")
        yield server.url


def tell(url: str, role: str, statement: str) -> list[tuple]:
    with psycopg.connect(url.replace("postgres@", f"{role}@"), autocommit=True) as connection:
        found = connection.execute(statement)
        return found.fetchall() if found.description else []


def test_each_has_its_own_part_and_none_stands_above_the_walls(url: str) -> None:
    known = "SELECT rolname, rolsuper OR rolbypassrls, rolpassword IS NOT NULL FROM pg_authid WHERE rolname LIKE 'marlaas_%' ORDER BY 1"
    assert tell(url, "postgres", known) == [(role, False, True) for role in sorted(ROLES)]
    tell(url, "marlaas_owner", "CREATE TABLE told (id serial PRIMARY KEY, text text)")
    tell(url, "marlaas_app", "INSERT INTO told (text) VALUES ('served')")
    assert tell(url, "marlaas_operator", "SELECT text FROM told") == [("served",)]


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("marlaas_app", "CREATE TABLE mine (id int)"),
        ("marlaas_operator", "INSERT INTO told VALUES (1)"),
        ("marlaas_app", "ALTER TABLE told DISABLE ROW LEVEL SECURITY"),
    ],
)
def test_what_is_anothers_part_is_refused(url: str, role: str, statement: str) -> None:
    tell(url, "marlaas_owner", "CREATE TABLE told (id int)")
    with pytest.raises(InsufficientPrivilege):
        tell(url, role, statement)
