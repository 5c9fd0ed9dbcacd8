"""The trainer against the same steps in a plain loop (``plain_loop``): transformers, PEFT, autograd and torch's own AdamW."""

from __future__ import annotations

import json
import random

import pytest

from engine.trajectory import Turn, decode
from tests.engine.train.plain_loop import ADDED, PlainLoop, load_peft, plain_logprobs
from tests.engine.train.recorded import GROUP, make_batch, make_request, make_spec

pytestmark = pytest.mark.engine

TOLERANCE = 1e-5
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")


def write(snapshot, home) -> None:
    for name in ADAPTER_FILES:
        (home / name).write_bytes(snapshot[name])


def with_fields(batch, **columns):
    """The same completions with one field or several replaced: a list per field."""
    import msgspec

    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    changed = [msgspec.structs.replace(t, **row) for t, row in zip(batch.trajectories, rows, strict=True)]
    return msgspec.structs.replace(batch, trajectories=changed)


def with_tool_text(batch):
    """The same completions, their first token a turn of its own that is followed by ``ADDED`` tokens of an environment."""
    before = [t.completion_ids for t in batch.trajectories]
    turns = [[Turn(sampled=1, added=ADDED, text=""), Turn(sampled=len(ids) - 1, added=0, text="")] for ids in before]
    return with_fields(batch, completion_ids=[[ids[0], *range(40, 40 + ADDED), *ids[1:]] for ids in before], turns=turns)


def trained_snapshot(worker, spec):
    """Version 1: an adapter whose B is no longer zero."""
    return worker.step(make_request("a", spec, worker.fresh("a", spec))).snapshot


def warm_start(worker, spec):
    """The adapter of version 1 with an optimizer that knows nothing, as the plain loop's."""
    fresh = worker.fresh("a", spec)
    record = json.dumps({"version": 1, "seed": spec.seed}).encode()
    return {**trained_snapshot(worker, spec), "optimizer.safetensors": fresh["optimizer.safetensors"], "trainer.json": record}


def near_the_policy(model, spec, batch):
    """``batch`` with log-probabilities that a sampler a little off would have told: importance weights of about 0.5 to 2."""
    import torch

    rng = random.Random(3)
    with torch.no_grad():
        told = [plain_logprobs(model, t, spec.rollout.temperature).tolist() for t in batch.trajectories]
    return with_fields(batch, logprobs=[[value + rng.uniform(-0.7, 0.7) for value in row] for row in told])


def updates_of(spec, batch):
    from engine.train.minibatches import plan_updates

    return plan_updates(range(len(batch.trajectories)), GROUP, spec.train, seed=spec.seed, version=batch.policy_version)


def both(worker, base_dir, tmp_path, spec, *, tools: bool = False):
    """(our metrics, our gradient by key, our new weights by key, the plain loop after the same step, its losses)."""
    from safetensors.torch import load

    start = warm_start(worker, spec)
    write(start, tmp_path)
    loop = PlainLoop(load_peft(base_dir, tmp_path, trainable=True), spec)
    batch = make_batch("a", version=1)
    batch = near_the_policy(loop.model, spec, with_tool_text(batch) if tools else batch)
    request = make_request("a", spec, start, batch, version=1)
    result = worker.step(request)
    shape = worker.model.adapters.activate(spec.lora)
    ours = {slot.key: slot.view(shape.gradient_P).clone() for slot in shape.slots}
    losses = loop.step(decode(request.batch).trajectories, GROUP, updates_of(spec, batch))
    return result.metrics, ours, load(result.snapshot["adapter_model.safetensors"]), loop, losses


CASES = {
    "grpo": {},
    "grpo, colder": {"rollout__temperature": 0.7},
    "dr_grpo": {"train__loss": "dr_grpo", "train__advantage": "unscaled"},
    "dapo": {"train__loss": "dapo", "train__clip_high": 0.28, "train__advantage": "batch"},
    "gspo": {"train__loss": "gspo", "train__importance_level": "sequence"},
    "cispo": {"train__loss": "cispo", "train__advantage": "rloo"},
    "masked importance": {"train__importance": "mask", "train__importance_cap": 1.3},
    "k1": {"train__kl_coefficient": 0.5, "train__kl_estimator": "k1"},
    "k2": {"train__loss": "dapo", "train__kl_coefficient": 0.5, "train__kl_estimator": "k2"},
    "k3": {"train__kl_coefficient": 0.5, "train__kl_estimator": "k3", "rollout__temperature": 0.7},
}


@pytest.mark.parametrize(("case", "tools"), [*((case, False) for case in CASES), ("grpo, colder", True), ("gspo", True), ("k1", True)])
def test_loss_and_gradient_agree_with_a_plain_reference(worker, base_dir, tmp_path, case, tools):
    spec = make_spec(**{"train__max_grad_norm": 1000.0, **CASES[case]})
    metrics, ours, _, loop, (loss,) = both(worker, base_dir, tmp_path, spec, tools=tools)
    theirs = loop.gradients()
    assert metrics["loss"] == pytest.approx(loss, abs=TOLERANCE)
    assert max(float(gradient.abs().max()) for gradient in ours.values()) > 10 * TOLERANCE
    assert ours.keys() == theirs.keys()
    for key, gradient in ours.items():
        assert (gradient - theirs[key]).abs().max() < TOLERANCE, key


# A high learning rate, so that the ratios leave their range between the updates of one step.
SEVERAL = {"train__epochs": 2, "train__minibatches": 3, "train__learning_rate": 3e-2, "train__kl_coefficient": 0.1}
LOSS_NAMES = ("grpo", "dr_grpo", "dapo", "gspo", "cispo")
CLIPS = {"gspo": {"train__clip_low": 0.02, "train__clip_high": 0.02}}


@pytest.mark.parametrize(("loss", "dual_clip"), [*((loss, None) for loss in LOSS_NAMES), ("grpo", 1.5), ("gspo", 1.5)])
def test_several_updates_per_step_agree_with_a_plain_reference(worker, base_dir, tmp_path, loss, dual_clip):
    spec = make_spec(**SEVERAL, **CLIPS.get(loss, {}), train__loss=loss, train__dual_clip=dual_clip)
    metrics, ours, weights, loop, losses = both(worker, base_dir, tmp_path, spec)
    theirs, their_weights = loop.gradients(), loop.weights()
    assert metrics["updates"] == len(losses) == 6
    assert metrics["clip_low_share"] > 0
    assert metrics["clip_high_share"] > 0
    assert metrics["loss"] == pytest.approx(sum(losses) / 6, abs=TOLERANCE)
    for key, gradient in ours.items():
        assert (gradient - theirs[key]).abs().max() < TOLERANCE, key  # of the last update, behind five others
        # AdamW divides by the gradient's size: where that is almost nothing, rounding moves a weight by as much as learning does.
        assert (weights[key] - their_weights[key]).abs().max() < spec.train.learning_rate / 30, key


def test_the_distance_to_the_base_is_reported_and_needs_no_second_model(worker, base_dir, tmp_path):
    import torch

    spec = make_spec(train__kl_coefficient=0.5, rollout__temperature=0.7)
    start, batch = trained_snapshot(worker, spec), make_batch("a", version=1, rewards=[1.0] * 8 + [0.0, 1.0, 0.0, 1.0])
    write(start, tmp_path)
    model, expected = load_peft(base_dir, tmp_path), []
    with torch.no_grad():
        for t in batch.trajectories:
            new = plain_logprobs(model, t, 0.7)
            with model.disable_adapter():
                difference = new - plain_logprobs(model, t, 0.7)
            expected += (torch.exp(-difference) - 1 + difference).tolist()
    metrics = worker.step(make_request("a", spec, start, batch, version=1)).metrics
    assert metrics["base_kl"] == pytest.approx(sum(expected) / len(expected), rel=1e-3)
    assert metrics["base_kl"] > 1e-4
    silent = worker.step(make_request("a", make_spec(), worker.fresh("a", make_spec()))).metrics
    assert silent["base_kl"] is None


def test_a_downloaded_snapshot_loads_in_peft_and_gives_the_trainers_log_probabilities(worker, base_dir, tmp_path):
    spec = make_spec(rank=4, alpha=20)
    snapshot = trained_snapshot(worker, spec)
    write(snapshot, tmp_path)
    model, batch = load_peft(base_dir, tmp_path), make_batch("a", version=1)
    batch = with_fields(batch, logprobs=[plain_logprobs(model, t, 1.0).tolist() for t in batch.trajectories])
    metrics = worker.step(make_request("a", spec, snapshot, batch, version=1)).metrics
    assert metrics["max_ratio"] < 1 + 1e-4
    assert metrics["mismatch_kl"] < 1e-8
    other = worker.step(make_request("a", make_spec(rank=4, alpha=40), snapshot, batch, version=1)).metrics
    assert other["mismatch_kl"] > 1e-7


def test_a_wrong_temperature_shows_as_mismatch(worker, base_dir, tmp_path):
    spec = make_spec(rollout__temperature=0.7)
    start = worker.fresh("a", spec)
    write(start, tmp_path)
    model, batch, mismatch = load_peft(base_dir, tmp_path), make_batch("a"), {}
    for sampled_at in (0.7, 1.0):
        told = with_fields(batch, logprobs=[plain_logprobs(model, t, sampled_at).tolist() for t in batch.trajectories])
        mismatch[sampled_at] = worker.step(make_request("a", spec, start, told)).metrics["mismatch_kl"]
    assert mismatch[0.7] < 1e-8
    assert mismatch[1.0] > 1e-3
