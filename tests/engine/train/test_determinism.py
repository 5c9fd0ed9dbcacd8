"""Issue: no state survives between jobs. Recorded rollouts, jobs of different shapes, bytes compared."""

from __future__ import annotations

import pytest

from engine.spec import LORA_TARGETS
from tests.engine.train.recorded import make_request, make_spec

pytestmark = pytest.mark.engine

STEPS = 3
SPECS = {
    "a": make_spec(rank=2, targets=("q_proj", "v_proj"), seed=1),
    "b": make_spec(rank=8, alpha=4, targets=LORA_TARGETS, seed=2, train__weight_decay=0.1),
    # The same shape as a, so that both live in the same modules, with another alpha.
    "c": make_spec(rank=2, alpha=32, targets=("q_proj", "v_proj"), seed=3, rollout__temperature=0.7),
    # Everything that a step can do between two commits.
    "d": make_spec(
        rank=2,
        targets=("q_proj", "v_proj"),
        seed=4,
        train__loss="gspo",
        train__advantage="rloo",
        train__epochs=2,
        train__minibatches=2,
        train__kl_coefficient=0.1,
        train__schedule="cosine",
    ),
}


def run(worker, order: str) -> dict[str, list[dict[str, bytes]]]:
    """Every letter of ``order`` is one step of that job. Returns each job's snapshots, version 0 first."""
    history = {job: [worker.fresh(job, SPECS[job])] for job in sorted(set(order))}
    for job in order:
        version = len(history[job]) - 1
        history[job].append(worker.step(make_request(job, SPECS[job], history[job][-1], version=version)).snapshot)
    return history


@pytest.fixture(scope="module")
def alone(worker):
    return {job: run(worker, job * STEPS)[job] for job in SPECS}


@pytest.mark.parametrize("order", ["abcdabcdabcd", "ccbbddaaabcd", "acadcdacdbbb"])
def test_interleaved_jobs_end_with_the_bytes_of_each_alone(worker, alone, order):
    assert run(worker, order) == alone


def test_a_new_process_would_write_the_same_bytes(base_dir, one_rank, alone):
    from engine.train.worker import TrainWorker

    assert run(TrainWorker(base_dir), "bdca" * STEPS) == alone


def test_training_moves_far_from_the_first_version(alone):
    import numpy as np
    import safetensors.numpy

    for snapshots in alone.values():
        first, last = (safetensors.numpy.load(snapshots[index]["adapter_model.safetensors"]) for index in (0, -1))
        assert max(float(np.abs(last[key] - first[key]).max()) for key in first) > 0.01
        assert len({snapshot["optimizer.safetensors"] for snapshot in snapshots}) == STEPS + 1


def leak_moments(monkeypatch) -> None:
    """Plant the bug: AdamW's moments stay where the last job of that size left them."""
    from engine.train import step

    real, left = step.adamw_state, {}

    def leaky(state, device):
        moments = real(state, device)
        return left.setdefault(len(moments.mean_P), moments)

    monkeypatch.setattr(step, "adamw_state", leaky)


def leak_gradient(monkeypatch) -> None:
    """Plant the bug: the gradient of the last job is not cleared."""
    from engine.train import step

    real = step._accumulate

    def leaky(passes, members, totals, shape):
        left = leaky.left.get(len(shape.gradient_P), 0.0)
        real(passes, members, totals, shape)
        leaky.left[len(shape.gradient_P)] = shape.gradient_P.add_(left).clone()
        return float(shape.gradient_P.norm())

    leaky.left = {}
    monkeypatch.setattr(step, "_accumulate", leaky)


@pytest.mark.parametrize("plant", [leak_moments, leak_gradient])
def test_a_planted_leak_between_jobs_is_seen(worker, alone, monkeypatch, plant):
    plant(monkeypatch)
    assert run(worker, "acacacbbbddd") != alone
