"""The loads, as values. The ``peer-…`` ones are what other systems were measured with on two cores: LoRA r=8 on all linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.spec import DatasetRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """What each of N tenants runs. ``tool_seconds``: median of a lognormal wait per completion (σ 0.5, at most 3 s), as if for a tool.

    ``wanted``: a character that about half of the completions hold. It is the reward, so that groups differ and there is something to
    train on: a load without any signal would train nothing and look fast.
    """

    name: str
    model: str
    task: str
    prompts_per_step: int
    group_size: int
    new_tokens: int
    steps: int
    prompt_tokens: int
    learning_rate: float
    wanted: str
    tool_seconds: float | None = None

    @property
    def rows(self) -> int:
        return self.prompts_per_step * self.steps

    def spec(self, dataset: DatasetRef, *, seed: int) -> dict[str, Any]:
        """A ``JobSpec`` as JSON. The end token ends nothing, so that every step samples the same number of tokens."""
        return {
            "base_model": self.model,
            "dataset": dataset,
            "grader": {"type": "string_check", "operation": "like", "reference": self.wanted},
            "rollout": {
                "prompts_per_step": self.prompts_per_step,
                "group_size": self.group_size,
                "max_prompt_tokens": self.prompt_tokens,
                "max_new_tokens": self.new_tokens,
                "ignore_eos": True,
            },
            "environment": self._environment(),
            "lora": {"rank": 8, "alpha": 16},
            "train": {"steps": self.steps, "learning_rate": self.learning_rate},
            "seed": seed,
        }

    def _environment(self) -> dict[str, Any]:
        if self.tool_seconds is None:
            return {"type": "single_turn"}
        latency = {"median_seconds": self.tool_seconds, "sigma": 0.5, "cap_seconds": 3.0}
        return {"type": "stand_in", "tool_turns": 1, "answer_turn": False, "latency": latency}


_PLAIN = {
    "model": "tiny-math",
    "task": "add",
    "prompts_per_step": 4,
    "group_size": 8,
    "new_tokens": 16,
    "steps": 10,
    "prompt_tokens": 24,
    "learning_rate": 1e-5,
    "wanted": "0",
}

LOADS = {
    load.name: load
    for load in (
        Load(name="peer-plain", **_PLAIN),
        Load(name="peer-tool", **_PLAIN, tool_seconds=0.5),
        Load(
            name="peer-lm",
            **_PLAIN
            | {
                "model": "smollm2-135m",
                "task": "words",
                "prompts_per_step": 2,
                "group_size": 4,
                "steps": 3,
                "prompt_tokens": 224,
                "learning_rate": 1e-6,
                "wanted": "t",
            },
        ),
    )
}
