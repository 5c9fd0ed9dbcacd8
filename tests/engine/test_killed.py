"""kill -9 at each named point of a step; the next process goes on, and nobody can tell from what is on disk.

Rollouts are recorded here. With the live sampler: ``tests/engine/rollout/test_real_restart.py``.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.audit import audit
from engine.journal import read_all
from engine.trajectory import decode
from tests.engine.killed import COMPLETIONS, JOB, POINTS, STEPS

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> tuple[Path, dict[str, list[int]]]:
    """(folder, how the processes of each point ended)."""
    folder = tmp_path_factory.mktemp("killed")
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.killed", str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder, json.loads(done.stdout.splitlines()[-1])


def versions(root: Path) -> dict[str, bytes]:
    """Adapter, optimizer and trainer's record of every version."""
    found = (
        path
        for pattern in ("*.safetensors", "trainer.json", "adapter_config.json")
        for path in root.glob(f"engine/jobs/{JOB}/v*/{pattern}")
    )
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def steps(root: Path) -> list[tuple[int, list[tuple[int, int, int, int]]]]:
    """(version, rows, samples, seeds and versions of what it was trained on) of every committed step."""
    told = [event.data for event in read_all(root / "engine/journal") if event.kind == "step"]
    return [(data["version"], _trained_on(root, data)) for data in told]


def _trained_on(root: Path, data: dict) -> list[tuple[int, int, int, int]]:
    batch = root / f"engine/jobs/{JOB}/rollouts/{data['trained_from']}/{data['attempt']}.msgpack"
    return [(t.row, t.sample, t.seed, t.policy_version) for t in decode(batch.read_bytes()).trajectories]


def test_undisturbed_every_version_differs_from_the_one_before(runs):
    folder, ends = runs
    found = versions(folder / "undisturbed")

    assert ends["undisturbed"] == [0]
    assert len(found) == 4 * (STEPS + 1)
    for name in ("adapter_model.safetensors", "optimizer.safetensors", "trainer.json"):
        assert len({content for path, content in found.items() if path.endswith(name)}) == STEPS + 1
    assert [len(trained_on) for _, trained_on in steps(folder / "undisturbed")] == [COMPLETIONS] * STEPS


@pytest.mark.parametrize("point", POINTS)
def test_a_process_killed_there_is_continued_to_the_same_bytes(runs, point):
    folder, ends = runs
    root, undisturbed = folder / point.replace(":", "-"), folder / "undisturbed"

    assert ends[point] == [-signal.SIGKILL, 0]
    assert versions(root) == versions(undisturbed)
    assert steps(root) == steps(undisturbed)
    assert audit(root / "engine") == []


def test_only_a_batch_that_was_not_told_is_sampled_again(runs):
    folder, _ = runs
    attempts = {point: _attempts_of_step_2(folder / point.replace(":", "-")) for point in POINTS}

    redone = {point for point, attempt in attempts.items() if attempt == 2}
    untold = {"rollout:sampling", "reward:grading", "rollout:staged", "rollout:renamed"}
    # The trainer may be asked while the journal still writes that the batch is ready.
    assert untold <= redone <= untold | {"train:asked"}


def _attempts_of_step_2(root: Path) -> int:
    return next(event.data["attempt"] for event in read_all(root / "engine/journal") if event.kind == "step" and event.data["version"] == 2)
