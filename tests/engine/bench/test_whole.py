"""The whole bench: over fakes in every test run, over the real sampler and trainer when there is time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine.runtime.child import variables
from engine.settings import REPOSITORY, EngineSettings
from tests.engine.engines import running_engine

FAKES = "tests.engine.runtime.fake_engine"


def bench(settings: EngineSettings, figures: Path, *arguments: str, seconds: float = 600) -> dict[str, Any]:
    environment = {**os.environ, **variables(settings)}
    command = [sys.executable, "-m", "engine.bench", *arguments, "--json", str(figures)]
    done = subprocess.run(command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    return json.loads(figures.read_text())


@pytest.mark.engine
@pytest.mark.timeout(180)
def test_two_regimes_are_run_on_one_engine_whose_policy_is_then_put_back(tmp_path):
    with running_engine(tmp_path / "state", module=FAKES) as engine:
        before = engine.run(_policy(engine))
        options = ["--workload", "mixed", "--jobs", "3", "--regimes", "marlaas,single-disaggregated", "--rounds", "2", "--no-bound"]
        found = bench(engine.settings, tmp_path / "figures.json", *options)
        after = engine.run(_policy(engine))

    assert list(found) == ["marlaas", "single-disaggregated", "_meta"]
    assert {name: (found[name]["steps"], found[name]["rounds"]) for name in found if name != "_meta"} == {
        "marlaas": (40, 2),
        "single-disaggregated": (40, 2),
    }
    assert before == after
    assert (tmp_path / "state" / "bench" / "mixed-3" / "report.md").exists()


async def _policy(engine) -> dict[str, Any]:
    async with engine.client() as client:
        return (await client.status())["policy"]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_run_is_held_against_its_own_work_replayed(tmp_path):
    with running_engine(tmp_path / "state") as engine:
        options = ["--workload", "agentic", "--jobs", "2", "--regimes", "marlaas"]
        found = bench(engine.settings, tmp_path / "figures.json", *options)

    assert found["_meta"]["bound"]["binding"] == "longest job"
    assert 0.3 < found["marlaas"]["bound_ratio"] < 1.05
    assert 0.3 < found["marlaas"]["ordered_ratio"] < 1.05


@pytest.mark.engine
@pytest.mark.timeout(400)
def test_losses_lift_the_held_out_accuracy_and_no_learning_rate_does_not(tmp_path):
    with running_engine(tmp_path / "state", kv_gib=0.5) as engine:
        options = ["learning", "--losses", "grpo,cispo", "--seeds", "1", "--steps", "12"]
        found = bench(engine.settings, tmp_path / "figures.json", *options)

    assert found["_meta"]["holds"]
    assert found["control"]["lift_points"]["by_seed"] == [0.0]  # greedy on the same weights: the same answers
    assert max(found[name]["mismatch_kl"] for name in ("grpo", "cispo", "control")) < 1e-5


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_loss_lifts_the_held_out_accuracy_on_five_seeds(tmp_path):
    with running_engine(tmp_path / "state", kv_gib=1.0, job_slots=8) as engine:
        found = bench(engine.settings, tmp_path / "figures.json", "learning", "--seeds", "5", seconds=3500)
        several = ["learning", "--seeds", "1", "--steps", "15", "--epochs", "2", "--minibatches", "2", "--no-control"]
        more = bench(engine.settings, tmp_path / "more.json", *several)

    assert found["_meta"]["holds"]
    assert more["_meta"]["holds"]
