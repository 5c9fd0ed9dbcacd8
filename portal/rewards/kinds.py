"""The kinds of rewards as people meet them: titles, plain words, which form fields each has, and how a stored one is summed up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from engine.grader_spec import shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """``fields``: of the form, beside name and type. ``rule``: what makes an answer right, in one sentence."""

    type: str
    title: str
    text: str
    rule: str
    fields: tuple[str, ...]


KINDS = (
    Kind(
        type="numeric",
        title="Number",
        text="Right when the number that the answer settles on equals the reference, within a tolerance. For sums and word problems.",
        rule="Right when the last number in the graded text is within the tolerance of the number it is compared with. "
        "Several candidates, or a number that is taken back, are wrong.",
        fields=("input", "reference", "absolute_tolerance", "relative_tolerance"),
    ),
    Kind(
        type="string_check",
        title="Exact text",
        text="Right when the answer equals, or contains, the reference. For labels and short answers.",
        rule="Right when the graded text fits the text it is compared with, in the way chosen above.",
        fields=("input", "reference", "operation", "strip"),
    ),
    Kind(
        type="math",
        title="Mathematics",
        text="Right when the answer is mathematically equal to the reference: 1/2, 0.5 and \\frac{1}{2} are the same.",
        rule="Right when both are the same mathematically, whatever the notation.",
        fields=("input", "reference"),
    ),
    Kind(
        type="text_similarity",
        title="Similar text",
        text="Between 0 and 1: how alike answer and reference are. For summaries and translations, where no two right answers are equal.",
        rule="The more words or characters both share, in the way of the chosen metric, the closer to 1.",
        fields=("input", "reference", "evaluation_metric"),
    ),
    Kind(
        type="json_schema",
        title="JSON schema",
        text="Right when the answer is JSON that fits your schema. For structured output; combine it with another for the content.",
        rule="Right when the graded text is one JSON document that the schema accepts; a fenced ```json block counts as its content.",
        fields=("input", "json_schema"),
    ),
    Kind(
        type="python",
        title="Python",
        text="Your own function of completion and row. It runs in a sandbox, without network or files.",
        rule="The reward is what your function returns for this row. None means that it does not apply.",
        fields=("source", "range_low", "range_high"),
    ),
    Kind(
        type="code_exec",
        title="Unit tests",
        text="Right when the Python code in the answer passes the row's tests. For programming tasks.",
        rule="Right when the code, the last fenced block of the graded text, passes its tests.",
        fields=("code_input", "tests", "partial", "seconds"),
    ),
    Kind(
        type="score_model",
        title="Judge: score",
        text="Another language model reads the completion and gives a number. For quality that no rule can tell.",
        rule="The reward is the number that the judge gives. What the judge reads and writes is charged as judge tokens.",
        fields=("model", "prompt", "range_low", "range_high"),
    ),
    Kind(
        type="label_model",
        title="Judge: label",
        text="Another language model sorts the completion under one of your labels; some of them pass.",
        rule="Right when the judge chooses a label that passes. What the judge reads and writes is charged as judge tokens.",
        fields=("model", "prompt", "labels", "passing_labels"),
    ),
    Kind(
        type="http",
        title="Your endpoint",
        text="Your own HTTPS service grades each completion. Requests are signed; private addresses and redirects are refused.",
        rule='The reward is what your endpoint answers: {"reward": 0.5}, or null where it does not apply.',
        fields=("url", "signing_secret", "range_low", "range_high", "seconds"),
    ),
    Kind(
        type="multi",
        title="Combination",
        text="A formula over rewards that you have already made, each recorded on its own. Mostly right answer, partly style.",
        rule="The reward is the formula's value. Does a reward in it not apply, neither does the whole.",
        fields=("parts", "calculate_output"),
    ),
)
BY_TYPE = {kind.type: kind for kind in KINDS}
_BLOCKS = ("source", "json_schema", "tests", "content", "prompt")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """``block``: shown over several lines, as it was written."""

    label: str
    value: str
    block: bool = False


def summary(grader: dict[str, Any]) -> str:
    """What is compared with what, in one line."""
    match grader:
        case {"input": str(text), "reference": reference}:
            return f"{text} with {reference}"
        case {"type": "multi", "calculate_output": formula}:
            return str(formula)
        case {"type": "http", "url": url}:
            return str(url)
        case {"type": "code_exec", "tests": tests}:
            return f"code with {tests}"
        case {"model": model}:
            return f"judged by {model}"
        case {"input": str(text)}:
            return text
    return "your function grade(sample, item)"


def facts(grader: dict[str, Any]) -> list[Fact]:
    """A stored grader, field by field, without its secret; parts of a combination follow the formula under their names."""
    return [fact for name, value in shown(grader).items() if name not in ("type", "name") for fact in _facts(name, value)]


def _facts(name: str, value: Any) -> list[Fact]:
    if name == "graders":
        return [
            Fact(label=f"{part}: {fact.label}", value=fact.value, block=fact.block)
            for part, grader in value.items()
            for fact in [Fact(label="type", value=grader["type"]), *facts(grader)]
        ]
    if name == "input" and isinstance(value, list):
        return [Fact(label=f"message from {message['role']}", value=message["content"], block=True) for message in value]
    if isinstance(value, dict):
        return [Fact(label=name, value=json.dumps(value, indent=2, ensure_ascii=False), block=True)]
    if isinstance(value, list):
        return [Fact(label=name, value=" to ".join(f"{bound:g}" for bound in value) if name == "range" else ", ".join(map(str, value)))]
    return [Fact(label=name, value=str(value), block=name in _BLOCKS and "\n" in str(value))]
