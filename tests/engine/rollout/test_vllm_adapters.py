from __future__ import annotations

import json

import pytest

from engine.ports import LoadRefused

pytestmark = pytest.mark.engine


def inspect(files, **changes):
    from engine.rollout import vllm_adapters as adapters

    return adapters.inspect(files, **{"layers": 4, "max_rank": 16} | changes)


def without(files, part):
    import safetensors.torch

    tensors = safetensors.torch.load(files["adapter_model.safetensors"])
    kept = {name: tensor for name, tensor in tensors.items() if part not in name}
    return {**files, "adapter_model.safetensors": safetensors.torch.save(kept)}


def test_a_fresh_adapter_does_nothing_and_a_trained_one_does(adapter_files):
    assert [inspect(adapter_files(41, std=std)).does_nothing for std in (0.0, 1e-8)] == [True, False]


def test_a_missing_layer_is_refused(adapter_files):
    with pytest.raises(LoadRefused, match="lacks lora_A of down_proj in layer 2"):
        inspect(without(adapter_files(41), "layers.2.mlp.down_proj"))


def test_a_layer_that_the_model_lacks_is_refused(adapter_files):
    with pytest.raises(LoadRefused, match="unexpected lora_A of down_proj in layer 3"):
        inspect(adapter_files(41), layers=3)


def test_a_rank_above_the_samplers_is_refused(adapter_files):
    with pytest.raises(LoadRefused, match="rank 16, the sampler takes at most 8"):
        inspect(adapter_files(41), max_rank=8)


def test_a_snapshot_without_weights_is_refused(adapter_files):
    with pytest.raises(LoadRefused, match=r"lacks adapter_model.safetensors"):
        inspect({"adapter_config.json": adapter_files(41)["adapter_config.json"]})


def test_an_amplified_copy_has_the_same_names_and_a_largest_b_of_one(adapter_files):
    import safetensors.torch

    from engine.rollout import vllm_adapters as adapters

    files = adapter_files(41, std=1e-6)
    loud = adapters.amplified(files)
    tensors = safetensors.torch.load(loud["adapter_model.safetensors"])

    assert inspect(loud).names == inspect(files).names
    assert max(float(t.abs().max()) for n, t in tensors.items() if "lora_B" in n) == pytest.approx(1.0)
    assert json.loads(loud["adapter_config.json"]) == json.loads(files["adapter_config.json"])
