"""What a reward is tried on, in the one shape that page and API share: texts, rows of a dataset, or the adversarial corpus."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from engine.grader_spec import NUMBER, Strict, parts_of
from portal.errors import Invalid

MAX_CASES = 500
MAX_SAMPLES = 50
MAX_REPEATS = 5
MAX_TEXT = 200_000
TOPICS = ("number", "expression", "choice", "text")
# What the built-in comparisons are made for; every other reward is asked everything.
_TOPICS_OF = {"numeric": ("number",), "math": ("number", "expression")}
Text = Annotated[str, Field(max_length=MAX_TEXT)]


class Sample(Strict):
    output_text: Text
    item: dict[str, Any] = Field(default_factory=dict)
    tool_calls: Annotated[list[dict[str, Any]], Field(max_length=200, default_factory=list)]


class OnText(Strict):
    """Completions typed by hand, each with the row that it answers."""

    type: Literal["text"]
    samples: Annotated[list[Sample], Field(min_length=1, max_length=MAX_SAMPLES)]


class OnRows(Strict):
    """Rows of a dataset version. The completion is ``output_text`` for each, or what stands in each row's ``column``."""

    type: Literal["rows"]
    dataset: str
    split: Literal["train", "eval"] = "train"
    pick: Literal["first", "random", "numbers"] = "first"
    count: Annotated[int, Field(ge=1, le=MAX_CASES)] = 20
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    numbers: Annotated[list[Annotated[int, Field(ge=0, lt=2**53), NUMBER]], Field(max_length=MAX_CASES, default_factory=list)]
    output_text: Text | None = None
    column: Annotated[str, Field(min_length=1, max_length=100)] | None = None

    @model_validator(mode="after")
    def _says_what_the_model_answers(self) -> OnRows:
        if (self.output_text is None) == (self.column is None):
            raise ValueError("output_text: give the completion, or in column the name of the column that holds it")
        if self.pick == "numbers" and not self.numbers:
            raise ValueError("numbers: name at least one row")
        return self


class OnCorpus(Strict):
    """The adversarial corpus; without ``topics``, what this kind of reward is made for."""

    type: Literal["corpus"]
    topics: Annotated[list[Literal[TOPICS]], Field(min_length=1, max_length=len(TOPICS))] | None = None


On = OnText | OnRows | OnCorpus


class Trial(Strict):
    """``repeats``: how often each case is graded; what differs between them is shown.

    ``base_model``: whose engine grades, which a judge named ``base`` is about; without it the first engine.
    """

    on: Annotated[On, Field(discriminator="type")]
    repeats: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    base_model: Annotated[str, Field(min_length=1, max_length=200)] | None = None


def parse_trial(raw: Any) -> Trial:
    """``raw`` (JSON-like) as a trial; raises ``Invalid`` naming each bad field."""
    try:
        trial = Trial.model_validate(raw)
    except ValidationError as error:
        raise Invalid([_problem(e) for e in error.errors()]) from None
    if problem := unstorable(raw):
        raise Invalid([("on", problem)])
    return trial


def topics_for(grader: Any) -> tuple[str, ...]:
    """What the corpus asks a parsed ``grader``: what all of its parts are made for, or everything."""
    kinds = [part.type for _, part in parts_of(grader) if part.type != "multi"]
    wanted = {topic for kind in kinds for topic in _TOPICS_OF.get(kind, TOPICS)}
    return tuple(topic for topic in TOPICS if topic in wanted)


def unstorable(value: Any) -> str | None:
    """Why no database takes ``value``; None when one does."""
    text = json.dumps(value, ensure_ascii=False)
    if "\\u0000" in text and "\x00" in "".join(_texts(value)):
        return "contains a NUL character; remove it"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "contains half of a character (a lone surrogate); remove it"
    return None


def _texts(value: Any) -> Iterable[str]:
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str):
            yield inner
        elif isinstance(inner, dict):
            waiting += [*inner.keys(), *inner.values()]
        elif isinstance(inner, list):
            waiting += inner


def _problem(error: Any) -> tuple[str, str]:
    location = [str(part) for index, part in enumerate(error["loc"]) if not (index == 1 and part in ("text", "rows", "corpus"))]
    message = error["msg"].removeprefix("Value error, ")
    for field in ("output_text", "numbers"):
        if message.startswith(f"{field}: "):
            return ".".join([*location, field]), message.removeprefix(f"{field}: ")
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return "on.type", "choose among text, rows, corpus"
    return ".".join(location) or "body", message


def request_schema(*, with_grader: bool) -> dict[str, Any]:
    """JSON schema of a request for a trial, made of the portal's own model."""
    schema = Trial.model_json_schema(ref_template="#/$defs/{model}")
    if with_grader:
        schema["properties"]["grader"] = {"type": "object", "description": "As in POST /rewards."}
        schema["required"] = ["grader", *schema["required"]]
    return _inlined(schema, schema.pop("$defs"))


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """``schema`` with its references replaced: a request's schema stands inside of a document that has no place for them."""
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    return {key: _inlined(value, definitions) for key, value in schema.items() if key != "discriminator"}
