"""The paper's setting as values, and what the paper says of it: MARLaaS, arXiv 2605.08527.

Only the paper's abstract and the settings in this project's issue were at hand, not its full text, so where the paper's own number is not
known, it is a guess and marked. The letters are explained in ``roofline``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from engine.sim.distributions import CappedLogNormal
from engine.sim.roofline import QWEN3, RooflineSpeeds
from engine.sim.workload import StepShape

# [I] 2,048 new tokens, 64 prompts a step; group of 8, since the paper gives none. [G] Qwen3 answers grade-school problems in some 350
# tokens when it does not think at length; a prompt is a question of some 60 tokens and a template.
GSM8K = StepShape(
    prompts_per_step=64,
    group_size=8,
    prompt_tokens=110,
    new_tokens=CappedLogNormal(median=350, sigma=0.5, cap=2048),
    max_new_tokens=2048,
)

# [I] 4,096 new tokens, 32 prompts, group 8. [G] competition problems take some 1,400 tokens, one in sixteen is cut off.
AMC12 = StepShape(
    prompts_per_step=32,
    group_size=8,
    prompt_tokens=150,
    new_tokens=CappedLogNormal(median=1400, sigma=0.7, cap=4096),
    max_new_tokens=4096,
)

# [I] HotpotQA, at most 5 calls, 1,024 new tokens, 32 prompts, group 8, a judge; tool latency as in the agentic benchmark: a
# lognormal, median 0.5 s, σ 0.5, cap 3 s. [G] a question needs two hops, so most episodes search twice; a call is some 110 tokens, its
# result three passages of 150 tokens with titles; the judge, another model's endpoint, answers in some 2 s and holds no device of ours.
SEARCH = StepShape(
    prompts_per_step=32,
    group_size=8,
    prompt_tokens=250,
    new_tokens=CappedLogNormal(median=110, sigma=0.5, cap=512),
    max_new_tokens=1024,
    call_shares=(0.05, 0.25, 0.40, 0.18, 0.08, 0.04),
    tool_wait=CappedLogNormal(median=0.5, sigma=0.5, cap=3.0),
    tool_tokens=500,
    final_wait=CappedLogNormal(median=2.0, sigma=0.5, cap=10.0),
)

WORKLOADS = {
    "gsm8k": [GSM8K],
    "amc12": [AMC12],
    "search": [SEARCH],
    "mixed": [GSM8K, AMC12, SEARCH],
}

EPOCH_STEPS = {
    "gsm8k": 7473 // 64,  # [L] GSM8K's training split, arXiv 2110.14168
    "amc12": 1100 // 32,  # [A] two papers a year of 25 problems, 2002 to 2023
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """A model on its node. [G] the split: half for rollout, half for training; the smallest tensor parallelism that leaves room for KV."""

    model: str
    rollout_devices: int
    train_devices: int
    tensor_parallel: int

    @property
    def devices(self) -> int:
        return self.rollout_devices + self.train_devices

    def disaggregated(self) -> RooflineSpeeds:
        return self._speeds(rollout_devices=self.rollout_devices, train_devices=self.train_devices)

    def collocated(self) -> RooflineSpeeds:
        """All devices for each phase in turn; switching costs nothing."""
        return self._speeds(rollout_devices=self.devices, train_devices=self.devices)

    @property
    def _speeds(self) -> partial[RooflineSpeeds]:
        return partial(RooflineSpeeds, model=QWEN3[self.model], tensor_parallel=self.tensor_parallel)


SCALES = {
    scale.model: scale
    for scale in (
        Scale(model="Qwen3-0.6B", rollout_devices=2, train_devices=2, tensor_parallel=1),
        Scale(model="Qwen3-14B", rollout_devices=4, train_devices=4, tensor_parallel=1),
        Scale(model="Qwen3-32B", rollout_devices=8, train_devices=8, tensor_parallel=2),
    )
}
