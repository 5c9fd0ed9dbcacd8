"""TrainSpec: how a job learns from its completions. Read by the form, the API and the trainer; needs pydantic only.

What each choice is for stands in deploy/LEARNING.md, the formulas in ``engine/train``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from engine.strict import Strict


class TrainSpec(Strict):
    steps: Annotated[int, Field(ge=1, le=100_000, description="Training steps: policy versions the job will commit.")] = 30
    learning_rate: Annotated[float, Field(ge=0, le=1, description="AdamW step size. 0 trains nothing: a control run.")] = 1e-3
    schedule: Annotated[
        Literal["constant", "cosine"], Field(description="How the learning rate goes on after the warm-up; cosine ends near 0.")
    ] = "constant"
    warmup_steps: Annotated[int, Field(ge=0, le=100_000, description="Steps over which the learning rate rises to its full value.")] = 0
    loss: Annotated[
        Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo"],
        Field(description="The policy-gradient loss. They differ in how tokens are weighed and where the ratio is clipped."),
    ] = "grpo"
    advantage: Annotated[
        Literal["grpo", "rloo", "unscaled", "batch"],
        Field(description="What a completion is held against: its group's mean, scaled by a deviation or not."),
    ] = "grpo"
    epochs: Annotated[int, Field(ge=1, le=16, description="Passes over each step's completions.")] = 1
    minibatches: Annotated[int, Field(ge=1, le=256, description="Updates per pass, each on a share of the step's prompts.")] = 1
    clip_low: Annotated[float, Field(gt=0, lt=1, description="How far a ratio may fall below 1 before it stops counting.")] = 0.2
    clip_high: Annotated[float, Field(gt=0, le=10, description="How far a ratio may rise above 1 before it stops counting.")] = 0.2
    dual_clip: Annotated[
        float | None, Field(gt=1, le=100, description="Bounds the ratio of bad completions as well; empty: no such bound.")
    ] = None
    kl_coefficient: Annotated[float, Field(ge=0, le=10, description="Weight of the penalty for leaving the base model; 0: none.")] = 0.0
    kl_estimator: Annotated[
        Literal["k1", "k2", "k3"], Field(description="How the distance to the base model is estimated from sampled tokens.")
    ] = "k3"
    importance: Annotated[
        Literal["truncate", "mask", "off"],
        Field(description="What happens to importance weights (trainer over sampler) above their cap: cut, dropped, or none are used."),
    ] = "truncate"
    importance_level: Annotated[
        Literal["token", "sequence"], Field(description="Whether each token has its own importance weight or a completion has one.")
    ] = "token"
    importance_cap: Annotated[float, Field(ge=1, le=100, description="The largest importance weight that is used as it is.")] = 2.0
    mask_truncated: Annotated[bool, Field(description="Do not train on completions that were cut at their longest.")] = False
    overlong_buffer_tokens: Annotated[
        int, Field(ge=0, le=1_000_000, description="The last tokens before the longest completion cost reward, more and more; 0: none.")
    ] = 0
    overlong_penalty: Annotated[float, Field(ge=0, le=100, description="What the longest completion loses through the buffer.")] = 1.0
    weight_decay: Annotated[float, Field(ge=0, le=1, description="Pulls the adapter towards zero, by learning rate times this.")] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0, le=1000, description="Longer gradients are scaled down to this.")] = 1.0
    micro_batch_tokens: Annotated[
        int, Field(ge=64, le=10_000_000, description="Tokens per forward pass; larger is faster and needs more memory.")
    ] = 16_384
    max_nonfinite_steps: Annotated[int, Field(ge=1, le=100, description="Non-finite gradients in a row before the job fails.")] = 3

    @field_validator("warmup_steps")
    @classmethod
    def _warm_before_the_end(cls, value: int, info: ValidationInfo) -> int:
        if value >= info.data.get("steps", value + 1):
            raise ValueError(f"must be below train.steps ({info.data['steps']}), else the full learning rate is never reached")
        return value

    @field_validator("dual_clip")
    @classmethod
    def _loss_has_a_bound(cls, value: float | None, info: ValidationInfo) -> float | None:
        if value is not None and info.data.get("loss") == "cispo":
            raise ValueError("cispo bounds the ratio of all completions already; leave this empty or choose another loss")
        return value

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates of one step, when enough groups carry a signal."""
        return self.epochs * self.minibatches
