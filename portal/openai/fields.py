"""Every field of OpenAI's requests that we know: honoured, ignored, or refused. deploy/OPENAI.md shows this table, and a test compares.

``null`` is the same as leaving a field out. What is not here is refused by its name: silence would be a promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from portal.errors import Invalid

Kind = Literal["honoured", "ignored", "refused"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """``note``: what becomes of it. ``harmless``: values that ask for nothing that we lack, so they are no reason to refuse."""

    kind: Kind
    note: str
    harmless: tuple[Any, ...] = ()


def honoured(note: str) -> Field:
    return Field(kind="honoured", note=note)


def ignored(note: str) -> Field:
    return Field(kind="ignored", note=note)


def refused(note: str, *harmless: Any) -> Field:
    return Field(kind="refused", note=note, harmless=harmless)


CHAT = {
    "model": honoured("a base model, or a job's id or name with `@` and a step; without a step, the latest"),
    "messages": honoured("roles system, developer (as system), user, assistant; contents are texts or lists of text parts"),
    "n": honoured("1 to 8; completion k samples with seed + k"),
    "max_completion_tokens": honoured("at most what the context still holds"),
    "max_tokens": honoured("the older name of max_completion_tokens"),
    "temperature": honoured("0 (greedy) to 2"),
    "top_p": honoured("above 0, at most 1"),
    "seed": honoured("the same seed, messages and version give the same tokens; without one, chance"),
    "stop": honoured("one string or up to 4; left out of the answer"),
    "logprobs": honoured("of the distribution that was sampled from, temperature and top_p in it"),
    "top_logprobs": honoured("0 to 20; needs logprobs"),
    "stream": honoured("server-sent events; a failure in the middle is an event with `error`"),
    "stream_options": honoured("include_usage; include_obfuscation is ignored"),
    "user": ignored("the token says whose it is"),
    "safety_identifier": ignored("as user"),
    "metadata": ignored("chats are not kept"),
    "prompt_cache_key": ignored("the cache is the tenant's own and needs no key"),
    "prompt_cache_retention": ignored("as prompt_cache_key"),
    "service_tier": ignored("there is one"),
    "verbosity": ignored("a matter of the prompt"),
    "store": refused("chats are not kept", False),
    "tools": refused("none are offered in chat", []),
    "tool_choice": refused("as tools", "none", "auto"),
    "parallel_tool_calls": refused("as tools", True, False),
    "functions": refused("as tools", []),
    "function_call": refused("as tools", "none", "auto"),
    "response_format": refused("answers are texts", {"type": "text"}),
    "modalities": refused("answers are texts", ["text"]),
    "audio": refused("answers are texts"),
    "prediction": refused("not offered"),
    "logit_bias": refused("not offered", {}),
    "presence_penalty": refused("not offered", 0),
    "frequency_penalty": refused("not offered", 0),
    "reasoning_effort": refused("the base model has none", "none"),
    "web_search_options": refused("not offered"),
    "moderation": refused("not offered"),
}

JOB = {
    "model": honoured("the base model"),
    "training_file": honoured("a file's id, or a dataset's made in the pages: with its own held-out rows"),
    "validation_file": honoured("held out for evaluation, in the place of the dataset's own"),
    "method": honoured("type `reinforcement`, with grader and hyperparameters"),
    "suffix": honoured("the job's name"),
    "seed": honoured("of sampling and of the row order"),
    "metadata": honoured("up to 16 pairs, to find the job by"),
    "integrations": refused("not offered", []),
    "hyperparameters": refused("belongs into method.reinforcement.hyperparameters", {}),
}

METHOD = {
    "type": honoured("`reinforcement`"),
    "reinforcement": honoured("grader and hyperparameters"),
    "supervised": refused("there is reinforcement only"),
    "dpo": refused("there is reinforcement only"),
}

REINFORCEMENT = {
    "grader": honoured("any grader of deploy/REWARDS.md, those of OpenAI among them"),
    "hyperparameters": honoured("the table below"),
    "response_format": refused("answers are texts; the json_schema grader rewards a shape"),
}

HYPERPARAMETERS = {
    "batch_size": honoured("rollout.prompts_per_step: prompts of one step"),
    "n_epochs": honoured("train.steps: so many passes over the training rows"),
    "learning_rate_multiplier": honoured("train.learning_rate: times the default of 0.001"),
    "compute_multiplier": honoured("rollout.group_size: times the default of 8 completions"),
    "eval_interval": honoured("eval.every: evaluate each n-th step"),
    "eval_samples": honoured("eval.max_rows: at most so many held-out rows"),
    "steps": honoured("train.steps, said outright; ours"),
    "learning_rate": honoured("train.learning_rate, said outright; ours"),
    "group_size": honoured("rollout.group_size, said outright; ours"),
    "max_prompt_tokens": honoured("rollout.max_prompt_tokens; ours"),
    "max_new_tokens": honoured("rollout.max_new_tokens; ours"),
    "temperature": honoured("rollout.temperature; ours"),
    "loss": honoured("train.loss; ours"),
    "advantage": honoured("train.advantage; ours"),
    "kl_coefficient": honoured("train.kl_coefficient; ours"),
    "lora_rank": honoured("lora.rank; ours"),
    "lora_alpha": honoured("lora.alpha; ours"),
    "reasoning_effort": refused("the base model has none", "default"),
}

FILE = {
    "file": honoured("JSON Lines, CSV or Parquet, checked whole at once"),
    "purpose": honoured("`fine-tune`"),
    "expires_after": refused("files stay until they are deleted"),
}

FILE_LIST = {
    "after": honoured("a file's id: those that were uploaded before it"),
    "limit": honoured("1 to 100; 100 unless said"),
    "purpose": honoured("`fine-tune`; there is nothing of any other"),
    "order": refused("the newest come first", "desc"),
}

GRADER_RUN = {
    "grader": honoured(
        "any grader of deploy/REWARDS.md; a judge called `base` is the model of the site's first engine, since the request names none"
    ),
    "item": honoured("what `{{item.…}}` stands for"),
    "model_sample": honoured("what `{{sample.output_text}}` stands for"),
}

TABLES = {
    "chat/completions": CHAT,
    "fine_tuning/jobs": JOB,
    "method": METHOD,
    "method.reinforcement": REINFORCEMENT,
    "method.reinforcement.hyperparameters": HYPERPARAMETERS,
    "files": FILE,
    "GET files": FILE_LIST,
    "fine_tuning/alpha/graders": GRADER_RUN,
}


def taken(raw: Any, table: dict[str, Field], problems: list[tuple[str, str]], path: str = "") -> dict[str, Any]:
    """The honoured fields of ``raw`` that are not null. What is refused or unknown is added to ``problems`` by its name."""
    if not isinstance(raw, dict):
        problems.append((path or "body", "must be an object"))
        return {}
    given = {name: value for name, value in raw.items() if value is not None}
    for name, value in given.items():
        field = table.get(name)
        where = f"{path}.{name}" if path else name
        if field is None:
            problems.append((where[:100], f"is not known; leave it out. Known are {', '.join(sorted(_welcome(table)))}"))
        elif field.kind == "refused" and not any(value == neutral and type(value) is type(neutral) for neutral in field.harmless):
            problems.append((where, f"is not supported: {field.note}"))
    return {name: value for name, value in given.items() if name in table and table[name].kind == "honoured"}


def checked(raw: Any, table: dict[str, Field]) -> dict[str, Any]:
    """``taken``; raises ``Invalid``."""
    problems: list[tuple[str, str]] = []
    found = taken(raw, table, problems)
    if problems:
        raise Invalid(problems)
    return found


def _welcome(table: dict[str, Field]) -> list[str]:
    return [name for name, field in table.items() if field.kind == "honoured"]
