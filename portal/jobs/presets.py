"""Starting points for a job. A preset only fills in the form; nothing else knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.spec import ModelInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    key: str
    title: str
    text: str
    values: dict[str, Any]

    @property
    def context_tokens(self) -> int:
        return self.values["rollout.max_prompt_tokens"] + self.values["rollout.max_new_tokens"]

    def obstacle(self, models: Sequence[ModelInfo]) -> str | None:
        """Why none of ``models`` can run this, or None."""
        longest = max((model.max_context_tokens for model in models), default=0)
        if longest >= self.context_tokens:
            return None
        return f"Needs a context of {self.context_tokens:,} tokens; the longest here is {longest:,}."


def _values(steps: int, rate: float, prompts: int, group: int, prompt_tokens: int, new_tokens: int) -> dict[str, Any]:
    return {
        "train.steps": steps,
        "train.learning_rate": rate,
        "rollout.prompts_per_step": prompts,
        "rollout.group_size": group,
        "rollout.max_prompt_tokens": prompt_tokens,
        "rollout.max_new_tokens": new_tokens,
    }


# Batch and completion lengths of GSM8K and AMC12 are those of the MARLaaS paper (arXiv 2605.08527); it gives no group size.
PRESETS = (
    Preset(
        key="quick",
        title="Quick start",
        text="Short answers, 30 steps. A minute or two on a small model.",
        values=_values(30, 1e-3, 16, 8, 32, 16),
    ),
    Preset(
        key="words",
        title="Word problems",
        text="Short reasoning on a small chat model, for trying things out.",
        values=_values(20, 1e-4, 8, 8, 192, 96),
    ),
    Preset(
        key="gsm8k",
        title="GSM8K",
        text="Grade-school maths: 64 prompts a step, answers of up to 2,048 tokens.",
        values=_values(200, 2e-5, 64, 8, 256, 2048),
    ),
    Preset(
        key="amc12",
        title="AMC12",
        text="Competition maths: 32 prompts a step, answers of up to 4,096 tokens.",
        values=_values(200, 2e-5, 32, 8, 512, 4096),
    ),
    Preset(
        key="control",
        title="Control",
        text="Quick start at learning rate 0. The reward must stay flat.",
        values=_values(10, 0.0, 16, 8, 32, 16),
    ),
)


def find(key: str | None) -> Preset:
    """The preset named ``key``; the first one for any other name."""
    return next((preset for preset in PRESETS if preset.key == key), PRESETS[0])
