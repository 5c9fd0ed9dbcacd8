"""Starting points for a job. A preset only fills in the form; nothing else knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.spec import ModelInfo, SingleTurn, Tools
from portal.jobs.environments import SECTION, SOURCE, TYPE


@dataclass(frozen=True, kw_only=True, slots=True)
class Preset:
    key: str
    title: str
    text: str
    values: dict[str, Any]

    @property
    def context_tokens(self) -> int:
        """Of one completion at its longest, as the spec counts it."""
        environment, values = self._environment(), self.values
        told = environment.most_turns * values["rollout.max_new_tokens"] + environment.most_added_tokens
        return values["rollout.max_prompt_tokens"] + min(told, environment.max_tokens or told)

    def _environment(self) -> SingleTurn | Tools:
        if self.values[TYPE] != "tools":
            return SingleTurn()
        limits = {path.rpartition(".")[2]: value for path, value in self.values.items() if path.startswith(f"{SECTION}max_")}
        return Tools(type="tools", **limits)

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
        TYPE: "single_turn",
    }


def _search(*, calls: int, call_tokens: int, all_tokens: int | None, results: int, instructions: str = "") -> dict[str, Any]:
    """A tool loop that searches. ``call_tokens``: of each answer of the search; ``all_tokens``: of a completion with all its answers."""
    return {
        TYPE: "tools",
        f"{SECTION}tools": ["search"],
        SOURCE: "bundled",
        f"{SECTION}search.results": results,
        f"{SECTION}max_calls": calls,
        f"{SECTION}max_tokens": all_tokens,
        f"{SECTION}max_observation_tokens": call_tokens,
        f"{SECTION}instructions": instructions,
    }


# Batch, completion lengths and number of calls of GSM8K, AMC12 and the wiki search are those of the MARLaaS paper (arXiv 2605.08527); it
# gives no group size. What the search answers is ours: 256 tokens a call, beside the 1,024 that the model may write.
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
        key="wiki",
        title="Wiki search",
        text="Questions of two hops, as in HotpotQA: 32 prompts a step, up to 5 searches and 1,024 tokens. Its reward is a judge.",
        values=_values(200, 2e-5, 32, 8, 512, 1024) | _search(calls=5, call_tokens=256, all_tokens=1024 + 5 * 256, results=3),
    ),
    Preset(
        key="almanac",
        title="Search, small",
        text="One search in the bundled almanac before each answer. Goes with the search sample, and with a model that reads English.",
        values=_values(10, 1e-3, 4, 4, 160, 16)
        | _search(
            calls=1, call_tokens=64, all_tokens=None, results=1, instructions="Write <tool>search: words</tool> to look something up."
        ),
    ),
    Preset(
        key="control",
        title="Control",
        text="Quick start at learning rate 0. The reward must stay flat.",
        values=_values(10, 0.0, 16, 8, 32, 16),
    ),
)


KEYS = tuple(preset.key for preset in PRESETS)


def find(key: str | None) -> Preset:
    """The preset named ``key``; the first one for any other name."""
    return next((preset for preset in PRESETS if preset.key == key), PRESETS[0])
