"""An outage day: each process of an installation is killed in turn while six jobs run. All end right, and the promises are kept on disk,
in the database and in the history.

PostgreSQL, Valkey, the portal's processes and the engine's are real; sampler and trainer are the engine's fakes, which take their time and
no model. The day with a model, on which vLLM and the reward-runner die too, is in ``test_real_house.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.portal.test_stack import Person, ended, eventually
from tests.support.house import House, standing
from tests.support.promises import all_kept, watching

pytestmark = [pytest.mark.soak, pytest.mark.stack, pytest.mark.timeout(900)]
JOBS, STEPS = 6, 25


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with standing(tmp_path / "var", FAKE_SAMPLER_SECONDS="0.4", FAKE_STEP_SECONDS="0.1") as house:
        yield house


def outages(house: House) -> list[tuple[str, Callable[[], None]]]:
    return [
        ("web", lambda: house.again("web")),
        ("worker", lambda: house.again("worker")),
        ("ingester", lambda: house.again("ingester")),
        ("broker", lambda: house.again("valkey")),
        ("database", house.database_again),
        ("sampler", lambda: house.kill_part("ray::RolloutActor")),
        ("trainer", lambda: house.kill_part("ray::TrainActor")),
        ("manager", lambda: house.kill_part("ray::ManagerActor")),
        ("the engine's door", lambda: house.kill_part("ray::HttpActor")),
        ("the whole engine", house.engine_again),
    ]


def test_each_process_dies_once_while_six_jobs_run_and_nothing_is_lost(house: House) -> None:
    alice = Person(house)
    jobs = [alice.start(steps=STEPS) for _ in range(JOBS)]
    with watching(alice, jobs, seconds=800) as seen:
        for number, (_, strike) in enumerate(outages(house), start=1):
            behind = min(2 * number, STEPS - 5)
            eventually(lambda behind=behind: max(alice.job(job)["version"] for job in jobs) >= behind or None)
            strike()
            house.until_engine()
        for job in jobs:
            alice.wait(job, ended)
        all_kept(house, alice, jobs, STEPS, seen)
