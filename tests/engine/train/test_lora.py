from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.spec import LORA_TARGETS, LoraSpec
from tests.engine.train.recorded import make_spec

pytestmark = pytest.mark.engine


def peft_model(base_dir: Path, spec: LoraSpec):
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from engine.train.lora import lora_config

    return get_peft_model(AutoModelForCausalLM.from_pretrained(base_dir), lora_config(spec))


def shapes(adapter: bytes) -> dict[str, tuple[int, ...]]:
    import safetensors.numpy

    return {key: value.shape for key, value in safetensors.numpy.load(adapter).items()}


@pytest.mark.parametrize("targets", [LORA_TARGETS, ("q_proj", "v_proj"), ("down_proj",)])
def test_key_names_are_exactly_those_that_peft_saves(worker, base_dir, tmp_path, targets):
    spec = make_spec(rank=3, targets=targets)
    peft_model(base_dir, spec.lora).save_pretrained(tmp_path)
    assert shapes(worker.fresh("a", spec)["adapter_model.safetensors"]) == shapes((tmp_path / "adapter_model.safetensors").read_bytes())


def test_the_key_names_are_these():
    from engine.train.lora import _peft_key

    found = _peft_key("model.layers.0.self_attn.q_proj.lora_A.shape3.weight", "shape3")
    assert found == "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


def test_a_fresh_adapter_changes_nothing_and_comes_from_the_seed_alone(worker):
    import safetensors.numpy
    import torch

    spec = make_spec(seed=4)
    first = worker.fresh("a", spec)
    torch.rand(17)  # whoever draws from the global generator meanwhile
    tensors = safetensors.numpy.load(first["adapter_model.safetensors"])
    assert all((value == 0).all() == key.endswith("lora_B.weight") for key, value in tensors.items())
    assert worker.fresh("b", spec) == first
    assert worker.fresh("a", make_spec(seed=5))["adapter_model.safetensors"] != first["adapter_model.safetensors"]


def test_creating_an_adapter_draws_nothing_from_the_global_generator(worker):
    import torch

    torch.manual_seed(1)
    before = torch.get_rng_state()
    worker.fresh("a", make_spec(rank=7))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_config_says_what_the_job_said_and_is_the_same_in_every_process(worker):
    config = json.loads(worker.fresh("a", make_spec(rank=4, alpha=12, targets=LORA_TARGETS))["adapter_config.json"])
    assert (config["r"], config["lora_alpha"], config["target_modules"]) == (4, 12, sorted(LORA_TARGETS))
    assert (config["peft_type"], config["task_type"], config["inference_mode"]) == ("LORA", "CAUSAL_LM", True)
    assert config["base_model_name_or_path"] == "tiny-math"


def test_shapes_are_forgotten_when_there_are_too_many_and_come_back(base_dir, one_rank):
    from engine.train.lora import SHAPES_KEPT
    from engine.train.worker import TrainWorker

    worker = TrainWorker(base_dir)
    first = worker.fresh("a", make_spec(rank=1))
    for rank in range(2, SHAPES_KEPT + 3):
        worker.fresh("b", make_spec(rank=rank, targets=("q_proj",)))
    kept = {name for layer in worker.model.adapters._layers for name in layer.scaling}
    assert len(kept) == SHAPES_KEPT
    assert worker.fresh("a", make_spec(rank=1)) == first


def test_switched_off_it_is_the_base_alone_and_back_on_it_learns_as_before(worker, base_dir):
    import torch
    from transformers import AutoModelForCausalLM

    from tests.engine.train.recorded import make_request

    spec = make_spec(targets=LORA_TARGETS)
    request = make_request("a", spec, worker.fresh("a", spec))
    trained, base = worker.step(request).snapshot, AutoModelForCausalLM.from_pretrained(base_dir)
    ids_BT = torch.arange(3, 15).unsqueeze(0)
    mask_BT = torch.ones_like(ids_BT, dtype=torch.bool)
    mask_BT[:, 0] = False
    with torch.no_grad():
        with worker.model.adapters.off():
            off_BT, _ = worker.model.scorer(ids_BT, mask_BT, 1.0)
        on_BT, _ = worker.model.scorer(ids_BT, mask_BT, 1.0)
        expected_BT = base(ids_BT).logits.log_softmax(-1)[:, :-1].gather(-1, ids_BT[:, 1:, None]).squeeze(-1)
    torch.testing.assert_close(off_BT[:, 1:], expected_BT, rtol=0, atol=1e-5)
    assert (on_BT - off_BT).abs().max() > 1e-3
    assert worker.step(request).snapshot == trained
