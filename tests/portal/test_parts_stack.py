"""The sampler is killed under a running job while the engine goes on answering: programs are told which part restarts, until it is back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.portal.test_stack import Person, ended, eventually, whole
from tests.support.house import House, standing

pytestmark = [pytest.mark.stack, pytest.mark.timeout(180)]


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with standing(tmp_path / "var", FAKE_SAMPLER_SECONDS="0.2", FAKE_LOAD_SECONDS="8") as house:
        yield house


def test_a_sampler_that_restarts_is_told_by_its_name_and_taken_back_and_the_job_ends_right(house: House) -> None:
    alice = Person(house)
    job = alice.start(steps=12)
    alice.wait(job, lambda found: found["version"] >= 2)
    house.kill_part("ray::RolloutActor")
    told = alice.wait(job, lambda found: found["engine_restarting"] is not None)
    assert (told["engine_restarting"]["part"], told["engine_away_since"], told["state"]) == ("sampler", None, "running")
    alice.wait(job, lambda found: found["engine_restarting"] is None)
    eventually(lambda: ended(alice.job(job)) or None)
    whole(alice, job, 12)
