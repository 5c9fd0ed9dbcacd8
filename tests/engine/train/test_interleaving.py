"""Eight jobs of different rank, targets, loss and schedule take turns on one trainer: each ends with the bytes that it has alone."""

from __future__ import annotations

import random

import pytest

from engine.spec import LORA_TARGETS
from tests.engine.train.recorded import make_request, make_spec

pytestmark = pytest.mark.engine

STEPS = 3
SPECS = {
    "a": make_spec(rank=1, targets=("q_proj",), seed=1),
    "b": make_spec(rank=2, targets=("q_proj", "v_proj"), seed=2, train__loss="dr_grpo"),
    "c": make_spec(rank=3, targets=("down_proj",), alpha=24, seed=3, rollout__temperature=0.7),
    "d": make_spec(rank=4, targets=("k_proj", "o_proj", "up_proj"), seed=4, train__loss="dapo"),
    "e": make_spec(rank=8, targets=LORA_TARGETS, alpha=4, seed=5, train__weight_decay=0.1),
    # The same shape as e, so that both live in the same modules.
    "f": make_spec(rank=8, targets=LORA_TARGETS, alpha=32, seed=6, train__loss="gspo"),
    "g": make_spec(rank=12, targets=("gate_proj", "up_proj", "down_proj"), seed=7, train__loss="cispo"),
    "h": make_spec(rank=16, targets=("v_proj", "o_proj"), seed=8, train__learning_rate=3e-3),
}
ALONE = "".join(job * STEPS for job in SPECS)


def run(worker, order: str) -> dict[str, list[dict[str, bytes]]]:
    """Every letter of ``order`` is one step of that job. Returns each job's snapshots, version 0 first."""
    history = {job: [worker.fresh(job, spec)] for job, spec in SPECS.items()}
    for job in order:
        version = len(history[job]) - 1
        history[job].append(worker.step(make_request(job, SPECS[job], history[job][-1], version=version)).snapshot)
    return history


@pytest.fixture(scope="module")
def alone(worker):
    return run(worker, ALONE)


@pytest.mark.parametrize("seed", [0, 1])
def test_eight_interleaved_jobs_end_with_the_bytes_of_each_alone(worker, alone, seed):
    order = "".join(random.Random(seed).sample(ALONE, len(ALONE)))

    assert run(worker, order) == alone


def test_each_of_the_eight_is_far_from_its_first_version_and_from_the_others(alone):
    import numpy as np
    import safetensors.numpy

    for snapshots in alone.values():
        first, last = (safetensors.numpy.load(snapshots[index]["adapter_model.safetensors"]) for index in (0, -1))
        assert max(float(np.abs(last[key] - first[key]).max()) for key in first) > 0.005
    every = [snapshot["adapter_model.safetensors"] for snapshots in alone.values() for snapshot in snapshots]
    assert len(set(every)) == len(SPECS) * (STEPS + 1)
