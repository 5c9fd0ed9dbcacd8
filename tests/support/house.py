"""A whole installation as in production, but for the machines: PostgreSQL with its three roles, Valkey, the portal's processes, an engine.

Everything of it can be killed and started again. The engine is the real one in every process; its sampler and trainer are fakes unless
``real`` says otherwise.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from engine import settings as engine_settings
from engine.runtime import reaper, run_file
from tests.browser.stack import ROOT, Stack, answers, free_port
from tests.support import postgres
from tests.support.parts import parts, title_of

DATABASE = "marlaas"


class House(Stack):
    """Portal and engine over ``server``. ``start`` makes the database with its roles first."""

    def __init__(self, state: Path, server: postgres.Server, *, real: bool = False, **engine: str):
        super().__init__(state, port=free_port(), engine_port=free_port())
        self.server = server
        self.superuser = self._url("postgres")
        self.environment |= {
            "MARLAAS_JOB_SLOTS": "6",
            "MARLAAS_KV_GIB": "0.25",
            "MARLAAS_OBJECT_STORE_MB": "80",
            # Tests ask again and again until something has happened, and on a slow machine for longer than a program may.
            "MARLAAS_API_CALLS_PER_TOKEN": "1000000",
            "MARLAAS_API_CALLS_PER_TENANT": "1000000",
            "DATABASE_URL": self._url("marlaas_app"),
            "MARLAAS_OWNER_DATABASE_URL": self._url("marlaas_owner"),
            **engine,
        }
        self.commands["engine"] = (sys.executable, "-m", "engine" if real else "tests.engine.runtime.fake_engine", "serve")
        self.commands["worker"] += ("--beat", "--schedule", str(self.runtime / "beat"))
        url = self.environment["MARLAAS_ENGINE_URL"]
        self.engine = engine_settings.load(state=state, runtime=self.runtime, engine_url=url)

    def _url(self, role: str) -> str:
        return self.server.url.replace("postgres@/postgres?", f"{role}@/{DATABASE}?")

    def make_database(self) -> None:
        """An empty one with the roles of deploy/roles.sql, which the server may know already."""
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {DATABASE}")
            for role in ("owner", "app", "operator"):
                connection.execute(f"DROP ROLE IF EXISTS marlaas_{role}")
        postgres.make_roles(self.server, self.superuser)

    def drop_database(self) -> None:
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")

    def start(self) -> House:
        """Brings all up over the database that there is; a fresh one is made."""
        with psycopg.connect(self.server.url) as connection:
            known = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone()
        if not known:
            self.make_database()
        super().start()
        self.until_engine()
        return self

    def until_engine(self) -> None:
        self.wait_for(lambda: answers(f"{self.environment['MARLAAS_ENGINE_URL']}/healthz"), "engine")

    def kill_part(self, title: str) -> None:
        """One of the engine's own processes, by the beginning of its title, once it is there; it is started again."""
        self.wait_for(lambda: len(parts(self.engine, title)) == 1, "engine")
        os.kill(parts(self.engine, title)[0], signal.SIGKILL)

    def kill_reward_runners(self) -> None:
        """They carry no tag, nothing of our environment being theirs; their last argument is the process that started them."""
        ours = set(map(str, run_file.processes(self.engine)))
        words = {int(entry.name): title_of(int(entry.name)).split() for entry in Path("/proc").iterdir() if entry.name.isdigit()}
        runners = [pid for pid, title in words.items() if "engine.rewards.runner" in title and title[-1] in ours]
        assert runners, "no reward-runner runs"
        for pid in runners:
            os.kill(pid, signal.SIGKILL)

    def again(self, name: str) -> None:
        self.kill(name)
        self.launch(name)

    def database_again(self) -> None:
        """As after a loss of power: no word to its clients, and it recovers from its log."""
        self.server.stop(signal.SIGQUIT)
        self.server.start()

    def engine_again(self) -> None:
        tag = run_file.read(self.engine)["tag"]
        self.kill("engine")
        self.wait_gone(tag)
        self.launch("engine")

    def stop(self) -> None:
        tag = (run_file.read(self.engine) or {}).get("tag", "")
        super().stop()
        self.processes.clear()
        if tag:
            self.wait_gone(tag)

    def wait_gone(self, tag: str) -> None:
        reaper.sweep(tag)
        assert reaper.tagged(tag) == []

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """As the superuser, whom no row is hidden from."""
        with psycopg.connect(self.superuser) as connection:
            return connection.execute(query).fetchall()

    def script(self, name: str, *words: object) -> str:
        """One of deploy's shell scripts over this installation; its output."""
        own = {
            "MARLAAS_STATE": str(self.state),
            "DATABASE_URL": self.environment["DATABASE_URL"],
            "MARLAAS_BACKUP_DATABASE_URL": self.superuser,
            "MARLAAS_OWNER_DATABASE_URL": self.environment["MARLAAS_OWNER_DATABASE_URL"],
            "PATH": f"{self.server.binaries}:{os.environ['PATH']}",
        }
        command = [str(ROOT / "deploy" / name), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **own})
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout.strip()

    def destroy(self) -> None:
        """Nothing is left of it but the server and its roles."""
        self.stop()
        self.drop_database()
        shutil.rmtree(self.state)
        shutil.rmtree(self.runtime)
        self.runtime.mkdir()


@contextmanager
def standing(state: Path, **options: Any) -> Iterator[House]:
    """Up, on a server of its own that keeps what it has committed; gone afterwards."""
    with postgres.running(durable=True) as server:
        house = House(state, server, **options)
        try:
            yield house.start()
        finally:
            house.stop()
