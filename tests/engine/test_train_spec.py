"""What a job may say about its training; what it may not is refused at the door, with the field named."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine.spec import JobSpec, SpecError, parse_job
from engine.train_spec import TrainSpec

# As the last release wrote it into journals and portals.
OLD_TRAIN = {
    "steps": 30,
    "learning_rate": 0.001,
    "loss": "grpo",
    "clip_low": 0.2,
    "clip_high": 0.2,
    "weight_decay": 0.0,
    "max_grad_norm": 1.0,
    "importance_cap": 2.0,
    "micro_batch_tokens": 16384,
    "max_nonfinite_steps": 3,
}


def spec(*, rollout: dict[str, Any] | None = None, **train: Any) -> JobSpec:
    return parse_job(
        {
            "base_model": "tiny-math",
            "dataset": {"version": "d1", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 100},
            "grader": {"type": "string_check"},
            "rollout": rollout or {},
            "train": train,
        }
    )


def problems(**wrong: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        spec(**wrong)
    return dict(caught.value.problems)


def test_a_job_of_an_earlier_release_trains_as_it_did():
    assert spec(**OLD_TRAIN) == spec()


def test_the_old_defaults_are_still_the_defaults():
    now = TrainSpec().model_dump()
    assert {name: now[name] for name in OLD_TRAIN} == OLD_TRAIN
    assert (now["advantage"], now["epochs"], now["minibatches"], now["kl_coefficient"], now["dual_clip"]) == ("grpo", 1, 1, 0.0, None)


@pytest.mark.parametrize("field", ["top_p", "top_k", "min_p"])
def test_sampling_from_a_part_of_the_distribution_is_refused_by_name(field):
    """The trainer's log-probabilities are of the whole distribution: a truncated one would be silently off-policy."""
    assert list(problems(rollout={field: 0.9})) == [f"rollout.{field}"]


@pytest.mark.parametrize(
    ("train", "field", "message"),
    [
        ({"loss": "ppo"}, "train.loss", "'grpo', 'dr_grpo', 'dapo', 'gspo' or 'cispo'"),
        ({"advantage": "gae"}, "train.advantage", "'grpo', 'rloo', 'unscaled' or 'batch'"),
        ({"kl_estimator": "k4"}, "train.kl_estimator", "'k1', 'k2' or 'k3'"),
        ({"epochs": 0}, "train.epochs", "greater than or equal to 1"),
        ({"dual_clip": 1.0}, "train.dual_clip", "greater than 1"),
        ({"dual_clip": 3.0, "loss": "cispo"}, "train.dual_clip", "cispo bounds the ratio"),
        ({"steps": 5, "warmup_steps": 5}, "train.warmup_steps", "must be below train.steps (5)"),
        ({"warmup_steps": 5, "steps": 0}, "train.steps", "greater than or equal to 1"),
        ({"kl_coefficient": -0.1}, "train.kl_coefficient", "greater than or equal to 0"),
        ({"use_dora": True}, "train.use_dora", "not permitted"),
    ],
)
def test_a_refused_value_is_named(train, field, message):
    assert message in problems(**train)[field]


@pytest.mark.parametrize(
    ("train", "message"),
    [
        ({"minibatches": 17}, "train.minibatches is 17, but a step has only 16 prompts"),
        ({"overlong_buffer_tokens": 33}, "train.overlong_buffer_tokens is 33, but the longest completion has 32 tokens"),
    ],
)
def test_what_does_not_fit_the_rollout_is_refused_with_the_field_to_change(train, message):
    assert any(told.startswith(message) for told in problems(**train).values())


def test_every_knob_says_what_it_is_and_survives_json():
    assert all(field.description.endswith(".") for field in TrainSpec.model_fields.values())
    assert TrainSpec.model_validate(json.loads(TrainSpec(dual_clip=3.0).model_dump_json())) == TrainSpec(dual_clip=3.0)
