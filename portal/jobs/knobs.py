"""The job form's fields, read off the spec's JSON schema: a new field in ``engine.spec`` appears there by itself, under "advanced"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from engine.spec import LORA_TARGETS, JobSpec

KINDS = ("integer", "number", "string", "boolean", "choices")
SECTIONS = ("rollout", "train", "lora", "eval", "doctor")
# Shown at once; all others are folded away.
BASIC = (
    "train.steps",
    "train.learning_rate",
    "rollout.prompts_per_step",
    "rollout.group_size",
    "rollout.max_prompt_tokens",
    "rollout.max_new_tokens",
)

# Words for people. What is missing here takes its name and description from the schema.
_WORDS = {
    "train.steps": ("Training steps", "How many times the model is updated. Each step commits one version that you can download."),
    "train.learning_rate": (
        "Learning rate",
        "How far each step moves the adapter. Too high unlearns the model; 0 is a control run that changes nothing.",
    ),
    "rollout.prompts_per_step": ("Prompts per step", "Different questions in each step (the batch). More is steadier and slower."),
    "rollout.group_size": (
        "Completions per prompt",
        "Answers sampled per question. They are compared with each other: all right or all wrong teaches nothing.",
    ),
    "rollout.max_prompt_tokens": ("Longest prompt", "In tokens. Longer prompts are refused before the job starts."),
    "rollout.max_new_tokens": ("Longest completion", "In tokens. A completion is cut here and counted as truncated."),
    "rollout.temperature": ("Temperature", "1 samples from the model as it is; lower is more cautious, higher explores more."),
    "lora.rank": ("Adapter rank", "Width of the adapter. More can learn more and costs more memory."),
    "lora.alpha": ("Adapter alpha", "The adapter's effect is multiplied by alpha ÷ rank."),
    "lora.target_modules": ("Adapted layers", "Which matrices of each layer get an adapter."),
    "train.schedule": ("Learning rate schedule", "Constant, or falling along a cosine to almost nothing at the last step."),
    "train.warmup_steps": ("Warm-up steps", "The learning rate rises over so many steps before it has its full value."),
    "train.loss": (
        "Loss",
        "grpo weighs answers alike, dapo and cispo tokens alike; dr_grpo does not favour long wrong answers; gspo clips whole answers.",
    ),
    "train.advantage": (
        "Advantage",
        "Each answer is compared with its group's mean: scaled by the group's spread (grpo), by the whole batch's (batch), not at all "
        "(unscaled), or against the other answers only (rloo).",
    ),
    "train.epochs": ("Passes per step", "How often each step's completions are learned from. More takes more from them, and clips more."),
    "train.minibatches": ("Updates per pass", "Each pass is cut into so many updates, by prompts. One pass of one update never clips."),
    "train.dual_clip": ("Dual clip", "Also bounds answers that got worse and likelier at once. 3 is usual; empty is off. Not with cispo."),
    "train.kl_coefficient": (
        "KL to the base",
        "How strongly the adapter is held near the base model. 0 is off; 0.001 to 0.05 is usual.",
    ),
    "train.kl_estimator": (
        "KL estimator",
        "k3 is GRPO's: steady, never negative. k1 is a penalty on the reward, k2 a squared distance.",
    ),
    "train.importance": (
        "Importance correction",
        "Corrects for sampler and trainer calculating a little differently: truncate bounds the correction, mask leaves such tokens out.",
    ),
    "train.importance_level": ("Importance level", "Whether each token is corrected by itself or a completion as a whole."),
    "train.mask_truncated": ("Ignore truncated", "Completions that were cut at their longest are graded but not learned from."),
    "train.overlong_buffer_tokens": (
        "Overlong buffer",
        "A completion that reaches into the last so many tokens loses reward, more the further it goes. 0 is off.",
    ),
    "train.overlong_penalty": ("Overlong penalty", "What a completion of full length loses where there is an overlong buffer."),
    "train.clip_low": ("Clip below", "How far a token's probability may fall in one step before its gradient is cut."),
    "train.clip_high": ("Clip above", "How far a token's probability may rise in one step before its gradient is cut."),
    "train.weight_decay": ("Weight decay", "Pulls the adapter towards zero. 0 is usual."),
    "train.max_grad_norm": ("Largest gradient norm", "Longer gradients are scaled down to this."),
    "train.importance_cap": ("Importance cap", "Bounds the correction for the difference between sampler and trainer."),
    "train.micro_batch_tokens": ("Tokens per forward pass", "Larger is faster and needs more memory. It does not change the result."),
    "train.max_nonfinite_steps": ("Non-finite steps allowed", "So many broken gradients in a row end the job."),
    "eval.every": ("Evaluate every", "In versions. 0 measures only the first and the last version."),
    "eval.max_rows": ("Evaluation rows", "At most so many held-out rows per evaluation."),
    "eval.temperature": ("Evaluation temperature", "0 takes the likeliest token each time."),
    "rollout.ignore_eos": ("Always sample to the limit", "The end token ends nothing. For benchmarks only."),
    "rollout.max_resamples": (
        "Resampling rounds",
        "Groups whose completions all scored alike give way to the next prompts, at most so often a step. All that is sampled is paid for.",
    ),
    "rollout.max_silent_steps": ("Silent steps allowed", "So many steps without any signal in a row pause the job. 0: never."),
    "doctor.pause_on": ("Pause when the doctor finds", "The step that is running commits first; you decide whether it goes on."),
    "seed": ("Seed", "The order of prompts and all sampling follow from it."),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Knob:
    """One field of the spec. ``kind``: one of ``KINDS``; limits are the schema's, None where it has none."""

    path: str
    label: str
    help: str
    kind: str
    default: Any
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    @property
    def basic(self) -> bool:
        return self.path in BASIC


def knobs() -> list[Knob]:
    """Every field a person may set, basic ones first in reading order."""
    found = {knob.path: knob for knob in _walk(JobSpec.model_json_schema())}
    return [found[path] for path in BASIC] + [knob for path, knob in found.items() if path not in BASIC]


def _walk(schema: dict[str, Any]) -> Iterator[Knob]:
    for section in SECTIONS:
        definition = schema["$defs"][schema["properties"][section]["$ref"].rpartition("/")[2]]
        for name, field in definition["properties"].items():
            yield from read_field(f"{section}.{name}", field)
    yield from read_field("seed", schema["properties"]["seed"])


def read_field(path: str, field: dict[str, Any], words: Mapping[str, tuple[str, str]] = _WORDS) -> Iterator[Knob]:
    """The knob of one field, or nothing for what is no single value: constants, and objects. ``words``: (label, help) by path."""
    field = {**field, **next((kind for kind in field.get("anyOf", ()) if "type" in kind and kind["type"] != "null"), {})}
    kind = "choices" if field.get("type") == "array" else field.get("type")
    if kind not in KINDS or "const" in field:
        return
    label, text = words.get(path, (field["title"].capitalize(), field.get("description", "")))
    choices = tuple(field.get("enum", ()) or field.get("items", {}).get("enum", ())) or (LORA_TARGETS if kind == "choices" else ())
    # A browser knows no open ends: those of whole numbers have a neighbour, for fractions the door has the last word.
    step = 1 if kind == "integer" else 0
    minimum = field.get("minimum", _beside(field.get("exclusiveMinimum"), step))
    maximum = field.get("maximum", _beside(field.get("exclusiveMaximum"), -step))
    yield Knob(path=path, label=label, help=text, kind=kind, default=field["default"], minimum=minimum, maximum=maximum, choices=choices)


def _beside(end: float | None, step: int) -> float | None:
    return None if end is None else end + step
