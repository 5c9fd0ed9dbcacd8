"""A whole installation with the real engine on tiny-math: its outage day, and destroyed and restored from its backup."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from engine import audit
from tests.browser.stack import ROOT
from tests.portal.test_stack import Person, ended, eventually, whole
from tests.support.house import House, standing
from tests.support.promises import all_kept, billed, books_are_sound, watching

pytestmark = [pytest.mark.soak, pytest.mark.stack, pytest.mark.timeout(900)]
STEPS, DAY = 30, 36
EXACT = "def grade(sample, item):\n    return float(sample['output_text'].strip() == item['answer'])\n"
BROKEN = "def grade(sample, item):\n    raise RuntimeError('not today')\n"


class Trainer(Person):
    """Somebody whose jobs fit the bundled model and are graded by code of their own."""

    def __init__(self, house: House, email: str = "alice@example.org", *, source: str = EXACT):
        super().__init__(house, email)
        reward = self.http.post("/rewards/", json={"name": "own code", "grader": {"type": "python", "source": source}}).json()
        self.order |= {
            "reward": reward["id"],
            "rollout": {"prompts_per_step": 8, "group_size": 4, "max_prompt_tokens": 24, "max_new_tokens": 8},
            "lora": {"rank": 8, "alpha": 16},
        }

    def until(self, job: str, version: int) -> dict[str, Any]:
        return self.wait(job, lambda found: found["version"] >= version or ended(found))

    def adapter(self, job: str, version: int) -> dict[str, bytes]:
        """The files of a downloaded version."""
        answer = self.http.get(f"/jobs/{job}/adapters/{version}/", follow_redirects=True)
        assert answer.status_code == 200, answer.text
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with standing(tmp_path / "var", real=True, MARLAAS_JOB_SLOTS="7", MARLAAS_KV_GIB="0.5") as house:
        yield house


def outages(house: House) -> list[Callable[[], None]]:
    parts = ("VLLM::EngineCore", "ray::RolloutActor", "ray::TrainActor", "ray::ManagerActor", "ray::HttpActor")
    return [*(partial(house.kill_part, part) for part in parts), house.kill_reward_runners, house.engine_again]


def trained_anew(house: House) -> list[str]:
    """See ``tests.support.replay``."""
    replay = (sys.executable, "-m", "tests.support.replay", str(house.state))
    done = subprocess.run(replay, cwd=ROOT, env=house.environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_each_part_with_the_model_dies_while_six_jobs_run_and_each_step_is_as_if_none_had(house: House) -> None:
    """The ``outage day`` of the parts that have fakes in the other. Bob's reward fails all the while, and only Bob hears of it (I7)."""
    alice, bob = Trainer(house), Trainer(house, "bob@example.org", source=BROKEN)
    jobs = [alice.start(steps=DAY) for _ in range(6)]
    bobs = bob.start(steps=DAY)
    with watching(alice, jobs, seconds=800) as seen:
        for strike in outages(house):
            more = sum(alice.job(job)["version"] for job in jobs) + 2 * len(jobs)  # one may lie ready of each
            eventually(lambda more=more: sum(alice.job(job)["version"] for job in jobs) >= more or None)
            strike()
            house.until_engine()
        bob.wait(bobs, lambda job: job["state"] == "paused")
        bob.http.post(f"/jobs/{bobs}/cancel/")
        for person, job in ((bob, bobs), *((alice, job) for job in jobs)):
            person.wait(job, ended)
        steps = 6 * DAY + bob.job(bobs)["version"]
        all_kept(house, alice, jobs, DAY, seen)
    assert trained_anew(house) == [f"{steps} steps"]


def test_all_is_back_after_a_backup_was_restored_over_nothing(house: House, tmp_path: Path) -> None:
    alice = Trainer(house)
    before = alice.start(steps=3)
    alice.wait(before, ended)
    running = [alice.start(steps=STEPS) for _ in range(2)]
    alice.until(running[0], 5)
    kept = alice.adapter(before, 3)
    made = house.script("backup.sh", tmp_path / "backups")
    known = {job: alice.job(job)["version"] for job in running}
    lost = alice.start(steps=3)  # of which the backup knows nothing
    alice.wait(lost, ended)
    charged = [row for row in billed(house) if row[0] == before]
    assert any(alice.job(job)["version"] > known[job] for job in running), "the backup is to be behind"

    house.destroy()
    house.make_database()  # an empty one on a server with the roles
    assert house.script("restore.sh", made).startswith("Restored ")
    house.start()

    eventually(lambda: alice.job(before)["state"] == "succeeded" or None)
    assert alice.job(lost).get("error", {}).get("code") or "state" not in alice.job(lost), "made after the backup"
    assert alice.adapter(before, 3) == kept
    for job in running:
        alice.wait(job, ended)
        whole(alice, job, STEPS)
    after = alice.start(steps=3)  # sequences, secrets and roles came back too
    alice.wait(after, ended)
    whole(alice, after, 3)
    assert [row for row in billed(house) if row[0] == before] == charged
    books_are_sound(house)
    assert house.rows("SELECT sum(held_micros) FROM billing_account") == [(0,)]
    house.stop()
    assert audit.audit(house.engine.engine_dir) == []
