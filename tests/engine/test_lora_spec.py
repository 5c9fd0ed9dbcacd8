"""Only adapters that sampler and trainer both understand are accepted; anything else is refused at the door, by its field."""

from __future__ import annotations

from typing import Any

import pytest

from engine.spec import LORA_TARGETS, SpecError, parse_job


def job(**lora: Any) -> dict[str, Any]:
    dataset = {"version": "d", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 100}
    return {"base_model": "tiny", "dataset": dataset, "grader": {"type": "string_check"}, "lora": lora}


@pytest.mark.parametrize(
    ("lora", "field"),
    [
        ({"target_modules": ["lm_head"]}, "lora.target_modules"),
        ({"target_modules": ["q_proj", "embed_tokens"]}, "lora.target_modules"),
        ({"modules_to_save": ["lm_head"]}, "lora.modules_to_save"),
        ({"use_dora": True}, "lora.use_dora"),
        ({"use_rslora": True}, "lora.use_rslora"),
        ({"bias": "all"}, "lora.bias"),
        ({"rank_pattern": {"q_proj": 4}}, "lora.rank_pattern"),
        ({"layers_to_transform": [0]}, "lora.layers_to_transform"),
    ],
)
def test_an_adapter_that_the_sampler_could_not_serve_is_refused_with_the_field_named(lora, field):
    with pytest.raises(SpecError) as refused:
        parse_job(job(**lora))

    assert [path for path, _ in refused.value.problems] == [field]


def test_a_layer_that_cannot_carry_an_adapter_is_named_with_those_that_can():
    with pytest.raises(SpecError, match=f"lm_head cannot carry an adapter; choose among {', '.join(LORA_TARGETS)}"):
        parse_job(job(target_modules=["lm_head"]))
