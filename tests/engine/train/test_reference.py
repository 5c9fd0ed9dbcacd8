"""The trainer against the same step written plainly with transformers, PEFT and autograd."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.trajectory import Turn, decode
from tests.engine.train.recorded import GROUP, make_batch, make_request, make_spec

pytestmark = pytest.mark.engine

TOLERANCE = 1e-5
ADDED = 5


def write(snapshot, home) -> None:
    for name, content in snapshot.items():
        (home / name).write_bytes(content)


def load_peft(base_dir, home, *, trainable: bool = False):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    return PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base_dir), home, is_trainable=trainable)


def plain_logprobs(model, trajectory, temperature: float):
    """log p of each sampled token, one completion at a time, no padding."""
    import torch

    ids = torch.tensor([trajectory.prompt_ids + trajectory.completion_ids])
    table = torch.log_softmax(model(input_ids=ids).logits[0] / temperature, -1)
    first = len(trajectory.prompt_ids)
    sampled = [k for k in range(len(trajectory.completion_ids)) if not trajectory.turns or k < 1 or k > ADDED]
    return torch.stack([table[first + k - 1, trajectory.completion_ids[k]] for k in sampled])


def with_tool_text(batch):
    """The same completions, their first token a turn of its own that is followed by ``ADDED`` tokens of an environment."""
    import msgspec

    def told(t):
        turns = [Turn(sampled=1, added=ADDED, text=""), Turn(sampled=len(t.completion_ids) - 1, added=0, text="")]
        ids = [t.completion_ids[0], *range(40, 40 + ADDED), *t.completion_ids[1:]]
        return msgspec.structs.replace(t, completion_ids=ids, turns=turns)

    return replace_trajectories(batch, [told(t) for t in batch.trajectories])


def plain_loss(model, batch, temperature: float, cap: float):
    import torch

    total = 0.0
    for start in range(0, len(batch.trajectories), GROUP):
        group = batch.trajectories[start : start + GROUP]
        rewards = torch.tensor([t.reward for t in group], dtype=torch.float64)
        for t, advantage in zip(group, ((rewards - rewards.mean()) / (rewards.std() + 1e-4)).tolist(), strict=True):
            logprobs = plain_logprobs(model, t, temperature)
            importance = torch.exp(logprobs.detach() - torch.tensor(t.logprobs)).clamp(max=cap)
            ratio = torch.exp(logprobs - logprobs.detach())
            total = total - (ratio * advantage * importance).mean() / len(batch.trajectories)
    return total


def trained_snapshot(worker, spec):
    """Version 1: an adapter whose B is no longer zero."""
    return worker.step(make_request("a", spec, worker.fresh("a", spec))).snapshot


@pytest.mark.parametrize(("temperature", "tools"), [(1.0, False), (0.7, False), (0.7, True)])
def test_loss_and_gradient_agree_with_a_plain_reference(worker, base_dir, tmp_path, temperature, tools):
    spec = make_spec(rollout__temperature=temperature, train__max_grad_norm=1000.0)
    start = trained_snapshot(worker, spec)
    batch = make_batch("a", version=1)
    request = make_request("a", spec, start, with_tool_text(batch) if tools else batch, version=1)
    metrics = worker.step(request).metrics
    shape = worker.model.adapters.activate(spec.lora)
    write(start, tmp_path)
    model = load_peft(base_dir, tmp_path, trainable=True)
    loss = plain_loss(model, decode(request.batch), temperature, spec.train.importance_cap)
    loss.backward()
    theirs = {name.replace(".default.", "."): p.grad for name, p in model.named_parameters() if p.requires_grad}
    assert metrics["loss"] == pytest.approx(loss.item(), abs=TOLERANCE)
    assert metrics["grad_norm"] > 1e-3
    for slot in shape.slots:
        assert (slot.view(shape.gradient_P) - theirs[slot.key]).abs().max() < TOLERANCE, slot.key


def test_a_downloaded_snapshot_loads_in_peft_and_gives_the_trainers_log_probabilities(worker, base_dir, tmp_path):
    spec = make_spec(rank=4, alpha=20)
    snapshot = trained_snapshot(worker, spec)
    write({name: snapshot[name] for name in ("adapter_model.safetensors", "adapter_config.json")}, tmp_path)
    model = load_peft(base_dir, tmp_path)
    batch = make_batch("a", version=1)
    sampled = [
        t.__class__(**{**{f: getattr(t, f) for f in t.__struct_fields__}, "logprobs": plain_logprobs(model, t, 1.0).tolist()})
        for t in batch.trajectories
    ]
    metrics = worker.step(make_request("a", spec, snapshot, replace_trajectories(batch, sampled), version=1)).metrics
    assert metrics["max_ratio"] < 1 + 1e-4
    assert metrics["mismatch_kl"] < 1e-8
    other = worker.step(make_request("a", make_spec(rank=4, alpha=40), snapshot, replace_trajectories(batch, sampled), version=1)).metrics
    assert other["mismatch_kl"] > 1e-7


def replace_trajectories(batch, trajectories):
    import msgspec

    return msgspec.structs.replace(batch, trajectories=trajectories)


def test_a_wrong_temperature_shows_as_mismatch(worker, base_dir, tmp_path):
    spec = make_spec(rollout__temperature=0.7)
    start = worker.fresh("a", spec)
    write(start, tmp_path)
    model = load_peft(base_dir, tmp_path)
    mismatch = {}
    for sampled_at in (0.7, 1.0):
        batch = make_batch("a")
        sampled = [msgspec_logprobs(t, plain_logprobs(model, t, sampled_at).tolist()) for t in batch.trajectories]
        request = make_request("a", spec, start, replace_trajectories(batch, sampled))
        mismatch[sampled_at] = worker.step(replace(request)).metrics["mismatch_kl"]
    assert mismatch[0.7] < 1e-8
    assert mismatch[1.0] > 1e-3


def msgspec_logprobs(trajectory, logprobs):
    import msgspec

    return msgspec.structs.replace(trajectory, logprobs=logprobs)
