"""A whole installation with the real engine on tiny-math: destroyed and restored from its backup, and with the reward-runner killed."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import audit
from tests.portal.test_stack import Person, ended, eventually, whole
from tests.support.house import House, standing

pytestmark = [pytest.mark.soak, pytest.mark.stack, pytest.mark.timeout(900)]
STEPS = 30
EXACT = "def grade(sample, item):\n    return float(sample['output_text'].strip() == item['answer'])\n"


class Trainer(Person):
    """Alice, whose jobs fit the bundled model and are graded by her own code."""

    def __init__(self, house: House):
        super().__init__(house)
        reward = self.http.post("/rewards/", json={"name": "own code", "grader": {"type": "python", "source": EXACT}}).json()
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
    with standing(tmp_path / "var", real=True, MARLAAS_JOB_SLOTS="4") as house:
        yield house


def billed(house: House) -> list[tuple[Any, ...]]:
    """(job, step, kind, number of entries, micros) of everything that jobs were charged, in order."""
    return house.rows(
        "SELECT source, step, kind, count(*), sum(amount_micros) FROM billing_entry WHERE source_type = 'job' AND amount_micros <> 0"
        " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )


def books_are_sound(house: House) -> None:
    assert ", 0 differences" in (found := house.manage("compare_engine")), found
    assert "0 unsound" in (found := house.manage("check_billing")), found
    assert {count for _, _, _, count, _ in billed(house)} == {1}, "a step is billed once for each kind"


def test_the_reward_runner_dies_and_the_jobs_that_it_graded_end_right(house: House) -> None:
    alice = Trainer(house)
    jobs = [alice.start(steps=12) for _ in range(2)]
    for behind in (2, 5):
        alice.until(jobs[0], behind)
        house.kill_reward_runners()
    for job in jobs:
        alice.wait(job, ended)
        whole(alice, job, 12)
    books_are_sound(house)
    house.stop()
    assert audit.audit(house.engine.engine_dir) == []


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
