"""An outage day: each process of an installation is killed in turn while six jobs run. All end right, and the promises are kept on disk,
in the database and in the history.

The portal's processes, Valkey and the engine's are real; sampler and trainer are the engine's fakes, which take their time and no model.
What a dying vLLM or a trainer with a model costs is in ``test_real_engine.py``.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import audit
from engine import settings as engine_settings
from engine.runtime import reaper, run_file
from tests.browser.stack import Stack, answers, free_port
from tests.portal.test_stack import Person, ended, eventually, whole

pytestmark = [pytest.mark.soak, pytest.mark.stack, pytest.mark.timeout(900)]
JOBS, STEPS = 6, 25


class House(Stack):
    """The stack with an engine that keeps its journal and its versions."""

    def __init__(self, state: Path):
        super().__init__(state, port=free_port(), engine_port=free_port())
        self.environment |= {
            "MARLAAS_JOB_SLOTS": "6",
            "MARLAAS_KV_GIB": "0.25",
            "MARLAAS_OBJECT_STORE_MB": "80",
            "FAKE_SAMPLER_SECONDS": "0.4",
            "FAKE_STEP_SECONDS": "0.1",
        }
        self.commands["engine"] = (sys.executable, "-m", "tests.engine.runtime.fake_engine", "serve")
        self.commands["worker"] += ("--beat", "--schedule", str(self.runtime / "beat"))
        url = self.environment["MARLAAS_ENGINE_URL"]
        self.engine = engine_settings.load(state=state, runtime=self.runtime, engine_url=url)

    def start(self) -> Stack:
        super().start()
        self.until_engine()
        return self

    def until_engine(self) -> None:
        eventually(lambda: answers(f"{self.environment['MARLAAS_ENGINE_URL']}/healthz") or None)

    def kill_part(self, title: str) -> None:
        """One of the engine's own processes, by the beginning of its title; Ray starts it again."""
        [pid] = [pid for pid in run_file.processes(self.engine) if process_title(pid).startswith(title)]
        os.kill(pid, signal.SIGKILL)

    def again(self, name: str) -> None:
        self.kill(name)
        self.launch(name)

    def engine_again(self) -> None:
        tag = run_file.read(self.engine)["tag"]
        self.kill("engine")
        eventually(lambda: reaper.tagged(tag) == [] or None)
        self.launch("engine")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.state / "db.sqlite3") as connection:
            return connection.execute(query).fetchall()


def process_title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path / "var")
    try:
        yield house.start()
    finally:
        house.stop()


def outages(house: House) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("web", lambda: house.again("web")),
        ("worker", lambda: house.again("worker")),
        ("ingester", lambda: house.again("ingester")),
        ("broker", lambda: house.again("valkey")),
        ("sampler", lambda: house.kill_part("ray::RolloutActor")),
        ("trainer", lambda: house.kill_part("ray::TrainActor")),
        ("manager", lambda: house.kill_part("ray::ManagerActor")),
        ("the engine's door", lambda: house.kill_part("ray::HttpActor")),
        ("the whole engine", house.engine_again),
    ]


def test_each_process_dies_once_while_six_jobs_run_and_nothing_is_lost(house: House) -> None:
    alice = Person(house)
    jobs = [alice.start(steps=STEPS) for _ in range(JOBS)]
    for number, (_, strike) in enumerate(outages(house), start=1):
        behind = min(2 * number, STEPS - 5)
        eventually(lambda behind=behind: max(alice.job(job)["version"] for job in jobs) >= behind or None)
        strike()
        house.until_engine()
    for job in jobs:
        alice.wait(job, ended)
        whole(alice, job, STEPS)
    found = house.manage("compare_engine")
    assert ", 0 differences" in found, found
    assert "0 unsound" in house.manage("check_billing")
    committed = house.rows(
        "SELECT source, step, kind, count(*) FROM billing_entry WHERE source_type = 'job' AND amount_micros < 0 GROUP BY 1, 2, 3"
    )
    assert {count for *_, count in committed} == {1}, "a step is billed once for each kind"
    assert {step for _, step, *_ in committed} == set(range(1, STEPS + 1))
    assert house.rows("SELECT sum(micros), sum(closed_at IS NULL) FROM billing_hold") == [(0, 0)]
    assert house.rows("SELECT sum(held_micros) FROM billing_account") == [(0,)]
    assert house.rows("SELECT count(*) FROM jobs_jobsubmission WHERE answered_at IS NULL") == [(0,)]
    house.stop()
    assert audit.audit(house.engine.engine_dir) == []
