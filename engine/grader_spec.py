"""Graders: the one schema of how a completion becomes a reward, in the shape that OpenAI's graders have.

What parses here can grade: templates, formulas, schemas, sources and URLs are read at this door, and refused with the field named.
``engine/rewards`` does the grading. Light like ``engine.spec``, for the portal's sake.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Collection, Iterator
from typing import Annotated, Any, Literal, Union, get_args

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError, field_validator, model_validator

from engine.rewards import addresses, schemas, templates
from engine.rewards.formula import FUNCTIONS, Formula, FormulaError
from engine.sealed import is_sealed
from engine.strict import NUMBER, SpecError, Strict, dotted

MAX_SOURCE_BYTES = 256_000
MAX_GRADER_BYTES = 600_000
MAX_GRADER_DEPTH = 60
MAX_GRADERS = 16
MAX_SECRET, MAX_SEALED = 200, 500
# Rewards beyond this are a slip: they would drown every other signal in float arithmetic.
MAX_REWARD = 1e6

METRICS = ("fuzzy_match", "bleu", "gleu", "meteor", "rouge_1", "rouge_2", "rouge_3", "rouge_4", "rouge_5", "rouge_l")
BASE_JUDGE = "base"
OUTPUT, ANSWER = "{{sample.output_text}}", "{{item.answer}}"


def _well_formed(template: str) -> str:
    if found := templates.problems(template):
        raise ValueError("; ".join(found))
    return template


Name = Annotated[str, Field(min_length=1, max_length=64)]
Template = Annotated[str, Field(min_length=1, max_length=2000), AfterValidator(_well_formed)]
LongTemplate = Annotated[str, Field(min_length=1, max_length=20_000), AfterValidator(_well_formed)]
Bound = Annotated[float, Field(ge=-MAX_REWARD, le=MAX_REWARD), NUMBER]


def _rising(value: tuple[float, float]) -> tuple[float, float]:
    if value[0] >= value[1]:
        raise ValueError("write the lowest reward first and a higher one behind it, as in [0, 1]")
    return value


Range = Annotated[tuple[Bound, Bound], AfterValidator(_rising)]
UNIT: tuple[float, float] = (0.0, 1.0)


class GraderBase(Strict):
    def templates(self) -> Iterator[tuple[str, str]]:
        """(field path, template) of each template in it."""
        for field in ("input", "reference", "tests"):
            if isinstance(value := getattr(self, field, None), str):
                yield field, value

    @property
    def bounds(self) -> tuple[float, float]:
        """The lowest and the highest reward that it may give."""
        return UNIT


class StringCheckGrader(GraderBase):
    """1 when ``input`` and ``reference`` compare as ``operation`` says, else 0."""

    type: Literal["string_check"]
    name: Name = "string_check"
    input: Template = OUTPUT
    reference: Template = ANSWER
    operation: Literal["eq", "ne", "like", "ilike"] = "eq"
    strip: bool = True


class NumericGrader(GraderBase):
    """1 when the last number in ``input`` is within ``tolerance`` (absolute or relative, whichever is wider) of ``reference``."""

    type: Literal["numeric"]
    name: Name = "numeric"
    input: Template = OUTPUT
    reference: Template = ANSWER
    absolute_tolerance: Annotated[float, Field(ge=0)] = 1e-6
    relative_tolerance: Annotated[float, Field(ge=0, lt=1)] = 0.0


class MathGrader(GraderBase):
    """1 when ``input`` is mathematically equal to ``reference`` (LaTeX, fractions, numbers; math-verify)."""

    type: Literal["math"]
    name: Name = "math"
    input: Template = OUTPUT
    reference: Template = ANSWER


class TextSimilarityGrader(GraderBase):
    """How alike ``input`` and ``reference`` are, from 0 to 1, by a metric of ``engine.rewards.similarity``."""

    type: Literal["text_similarity"]
    name: Name = "text_similarity"
    input: Template = OUTPUT
    reference: Template = ANSWER
    evaluation_metric: Literal[METRICS] = "fuzzy_match"

    @field_validator("evaluation_metric", mode="before")
    @classmethod
    def _no_embeddings(cls, value: Any) -> Any:
        if value == "cosine":
            raise ValueError(f"cosine needs an embedding service, which there is none of here; choose among {', '.join(METRICS)}")
        return value


class JsonSchemaGrader(GraderBase):
    """1 when ``input`` is a JSON document, alone or in one fenced block, that ``json_schema`` accepts, else 0."""

    type: Literal["json_schema"]
    name: Name = "json_schema"
    input: Template = OUTPUT
    json_schema: dict[str, Any]

    @field_validator("json_schema")
    @classmethod
    def _can_be_checked(cls, value: dict[str, Any]) -> dict[str, Any]:
        schemas.check(value)
        return value


class PythonGrader(GraderBase):
    """What the tenant's ``def grade(sample, item)`` returns.

    A number, a dict of numbers with ``reward`` among them, or None where the row is none of its business.
    """

    type: Literal["python"]
    name: Name = "python"
    source: Annotated[str, Field(min_length=1)]
    range: Range = UNIT

    @field_validator("source")
    @classmethod
    def _defines_grade(cls, value: str) -> str:
        if len(value.encode()) > MAX_SOURCE_BYTES:
            raise ValueError(f"is larger than {MAX_SOURCE_BYTES // 1000} kB")
        _check_source(value)
        return value

    @property
    def bounds(self) -> tuple[float, float]:
        return self.range


class CodeExecGrader(GraderBase):
    """Runs the completion's Python code against ``tests``: 1 when all pass, else 0, or with ``partial`` the share that passes.

    The code is the last fenced block of ``input``, or all of it where there is none. ``tests`` becomes Python with asserts, or a JSON
    list of tests: see ``engine.rewards.code.parse_tests``. Each may take ``seconds``.
    """

    type: Literal["code_exec"]
    name: Name = "code_exec"
    input: Template = OUTPUT
    tests: LongTemplate = "{{item.tests}}"
    partial: bool = False
    seconds: Annotated[float, Field(gt=0, le=60)] = 5.0


class HttpGrader(GraderBase):
    """What the tenant's own endpoint answers: ``{"reward": number or null}`` to a signed POST of ``{"sample", "item"}``."""

    type: Literal["http"]
    name: Name = "http"
    url: Annotated[str, Field(min_length=1)]
    signing_secret: Annotated[str, Field(min_length=16, max_length=MAX_SEALED, repr=False)]
    range: Range = UNIT
    seconds: Annotated[float, Field(gt=0, le=60)] = 10.0

    @field_validator("url")
    @classmethod
    def _public(cls, value: str) -> str:
        if problem := addresses.url_problem(value):
            raise ValueError(problem)
        return value

    @field_validator("signing_secret")
    @classmethod
    def _printable(cls, value: str) -> str:
        if not value.isascii() or not value.isprintable():
            raise ValueError("may hold printable ASCII characters only")
        if len(value) > MAX_SECRET and not is_sealed(value):
            raise ValueError(f"should have at most {MAX_SECRET} characters")
        return value

    @property
    def bounds(self) -> tuple[float, float]:
        return self.range


class JudgeMessage(Strict):
    role: Literal["system", "developer", "user", "assistant"]
    content: LongTemplate


class SamplingParams(Strict):
    """How the judge answers. ``max_completions_tokens`` is spelled as OpenAI spells it."""

    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int | None, Field(ge=0, lt=2**31)] = None
    max_completions_tokens: Annotated[int, Field(ge=1, le=32_768)] = 1024


def _shows_the_completion(messages: tuple[JudgeMessage, ...]) -> tuple[JudgeMessage, ...]:
    if not any(templates.shows_completion(message.content) for message in messages):
        raise ValueError("no message shows the judge the completion; use {{sample.output_text}}")
    return messages


JudgeInput = Annotated[tuple[JudgeMessage, ...], Field(max_length=32), AfterValidator(_shows_the_completion)]


class JudgeGrader(GraderBase):
    """A language model judges; ``model`` is the name of a judge that the operator has listed, or ``base``: the base model itself."""

    model: Name
    input: JudgeInput
    sampling_params: SamplingParams = SamplingParams()

    def templates(self) -> Iterator[tuple[str, str]]:
        yield from ((f"input.{index}.content", message.content) for index, message in enumerate(self.input))


class ScoreModelGrader(JudgeGrader):
    """The judge's score, a number within ``range``."""

    type: Literal["score_model"]
    name: Name = "score_model"
    range: Range = UNIT

    @property
    def bounds(self) -> tuple[float, float]:
        return self.range


Label = Annotated[str, Field(min_length=1, max_length=100)]
Labels = Annotated[tuple[Label, ...], Field(min_length=1, max_length=100)]


class LabelModelGrader(JudgeGrader):
    """1 when the judge chooses one of ``passing_labels`` among ``labels``, else 0."""

    type: Literal["label_model"]
    name: Name = "label_model"
    labels: Labels
    passing_labels: Labels

    @model_validator(mode="after")
    def _labels_differ(self) -> LabelModelGrader:
        if len(set(self.labels)) != len(self.labels):
            raise ValueError("labels: names a label twice")
        if unknown := [label for label in self.passing_labels if label not in self.labels]:
            raise ValueError(f"passing_labels: {unknown[0]!r} is not among the labels")
        if len(self.labels) < 2 or set(self.passing_labels) == set(self.labels):
            raise ValueError("passing_labels: at least one label must not pass, or every completion gets the same reward")
        return self


SINGLE = (
    *(StringCheckGrader, NumericGrader, MathGrader, TextSimilarityGrader, JsonSchemaGrader),
    *(PythonGrader, CodeExecGrader, HttpGrader, ScoreModelGrader, LabelModelGrader),
)
SingleGrader = Annotated[Union[SINGLE], Field(discriminator="type")]


class MultiGrader(GraderBase):
    """``calculate_output`` over the rewards of ``graders``, each under its name: ``0.8 * right + 0.2 * short``.

    A grader that the formula does not use is recorded and changes nothing. Does one that it uses not apply, then neither does the whole.
    """

    type: Literal["multi"]
    name: Name = "multi"
    graders: Annotated[dict[str, SingleGrader], Field(min_length=1, max_length=MAX_GRADERS)]
    calculate_output: Annotated[str, Field(min_length=1)]

    @field_validator("graders")
    @classmethod
    def _usable_names(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name) or keyword.iskeyword(name) or name in FUNCTIONS:
                raise ValueError(f"{name[:64]!r} cannot stand in a formula; use letters, digits and _, and none of {', '.join(FUNCTIONS)}")
        return value

    @model_validator(mode="after")
    def _computable(self) -> MultiGrader:
        try:
            formula = Formula.parse(self.calculate_output)
        except FormulaError as error:
            raise ValueError(f"calculate_output: {error}") from None
        if unknown := sorted(formula.names - self.graders.keys()):
            raise ValueError(f"calculate_output: there is no grader {unknown[0]!r}; there are {', '.join(self.graders)}")
        if not formula.names:
            raise ValueError("calculate_output: uses none of the graders, so every completion would get the same reward")
        if problem := _never_computes(formula, {name: grader.bounds for name, grader in self.graders.items()}):
            raise ValueError(f"calculate_output: {problem}")
        return self

    def templates(self) -> Iterator[tuple[str, str]]:
        for name, grader in self.graders.items():
            yield from ((f"graders.{name}.{path}", template) for path, template in grader.templates())

    @property
    def bounds(self) -> tuple[float, float]:
        return -MAX_REWARD, MAX_REWARD


Grader = Annotated[Union[(*SINGLE, MultiGrader)], Field(discriminator="type")]
TYPES: tuple[str, ...] = tuple(get_args(model.model_fields["type"].annotation)[0] for model in (*SINGLE, MultiGrader))
_ADAPTER: TypeAdapter[Any] = TypeAdapter(Grader)


def parse_grader(raw: Any) -> Any:
    """``raw`` (JSON-like) as a grader; raises ``SpecError`` naming each bad field as the tenant wrote it (``graders.a.reference``)."""
    if problem := _unstorable(raw):
        raise SpecError([problem])
    try:
        return _ADAPTER.validate_python(raw)
    except ValidationError as error:
        raise SpecError([field_problem(e) for e in error.errors()]) from None


def template_problems(grader: BaseModel, columns: Collection[str] | None) -> list[tuple[str, str]]:
    """(field path, problem) for each template that a dataset with ``columns`` cannot fill; None: no dataset chosen yet."""
    return [(path, problem) for path, template in grader.templates() for problem in templates.problems(template, columns)]


def columns_of(grader: BaseModel) -> set[str]:
    """The dataset columns that its templates need."""
    return {column for _, template in grader.templates() for column in templates.columns_of(template)}


def parts_of(grader: Any) -> Iterator[tuple[str, Any]]:
    """(path prefix, grader) of ``grader`` itself and of each one inside it."""
    yield "", grader
    for name, part in getattr(grader, "graders", {}).items():
        yield f"graders.{name}.", part


def field_problem(error: Any) -> tuple[str, str]:
    """The field and the message; tags of unions come in pydantic's path, and nobody typed them into a field."""
    location = [part for index, part in enumerate(error["loc"]) if not _is_tag(error["loc"], index)]
    message = error["msg"].removeprefix("Value error, ")
    # Checks over several fields name the one to mend in front of their message.
    if (match := re.match(r"(calculate_output|labels|passing_labels): ", message)) and location[-1:] != [match[1]]:
        location, message = [*location, match[1]], message[match.end() :]
    if error["type"] in ("union_tag_invalid", "union_tag_not_found"):
        known = TYPES if not location else TYPES[:-1]
        location, message = [*location, "type"], f"choose among {', '.join(known)}"
    return dotted(tuple(location)) if location else "type", message


def _is_tag(location: tuple[Any, ...], index: int) -> bool:
    part = location[index]
    return part in TYPES and (index == 0 or (index == 3 and location[1] == "graders")) and not (index == 0 and location[0] not in TYPES)


def _unstorable(raw: Any) -> tuple[str, str] | None:
    """What no database or wire takes, found before anything else looks at it; without recursion, since depth is what may be wrong."""
    size, waiting = 0, [("", raw, 1)]
    while waiting:
        path, value, depth = waiting.pop()
        if depth > MAX_GRADER_DEPTH:
            return path.split(".")[0] or "type", f"is nested more than {MAX_GRADER_DEPTH} deep"
        if isinstance(value, dict):
            if odd := next((key for key in value if not isinstance(key, str)), None):
                return path or "type", f"has a key that is no text: {odd!r}"
            waiting += [(f"{path}.{key}" if path else key, inner, depth + 1) for key, inner in value.items()]
            size += sum(map(len, value))
            texts = [*value]
        elif isinstance(value, list | tuple):
            waiting += [(f"{path}.{index}", inner, depth + 1) for index, inner in enumerate(value)]
            texts = []
        else:
            texts = [value] if isinstance(value, str) else []
            size += len(value) if isinstance(value, str) else 8
        if size > MAX_GRADER_BYTES:
            return path or "type", f"the whole grader is larger than {MAX_GRADER_BYTES // 1000} kB"
        for text in texts:
            if "\x00" in text:
                return _printable(path), "contains a NUL character; remove it"
            if any("\ud800" <= character <= "\udfff" for character in text if character > "\ud7ff"):
                return _printable(path), "contains half of a character (a lone surrogate); remove it"
    return None


def _printable(path: str) -> str:
    return path.encode("utf-8", "replace").decode().replace("\x00", "?") or "type"


def _check_source(source: str) -> None:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        raise ValueError(f"line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"cannot be read: {str(error) or 'nested too deeply'}") from None
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == "grade"]
    if not found:
        raise ValueError("defines no function at its top level called grade; write def grade(sample, item):")
    if isinstance(found[-1], ast.AsyncFunctionDef):
        raise ValueError(f"line {found[-1].lineno}: grade is async; write def grade(sample, item):")
    if not _takes_two(found[-1].args):
        raise ValueError(f"line {found[-1].lineno}: grade must take two values, the sample and the item")


def _takes_two(arguments: ast.arguments) -> bool:
    positional = len(arguments.posonlyargs) + len(arguments.args)
    needed = positional - len(arguments.defaults)
    keywords_needed = sum(default is None for default in arguments.kw_defaults)
    return needed <= 2 and (positional >= 2 or arguments.vararg is not None) and not keywords_needed


def _never_computes(formula: Formula, bounds: dict[str, tuple[float, float]]) -> str | None:
    """Why no reward can come of ``formula``: tried at the ends and inside of each grader's range."""
    why = ""
    for share in (0.0, 1.0, 0.5, 0.37):
        for turned in (False, True):
            values = {
                name: low + (high - low) * ((1 - share) if turned and index % 2 else share)
                for index, (name, (low, high)) in enumerate(bounds.items())
            }
            try:
                if math.fabs(formula.value(values)) <= MAX_REWARD:
                    return None
                why = f"gives more than {MAX_REWARD:g}"
            except FormulaError as error:
                why = str(error)
    return why


def shown(grader: dict[str, Any]) -> dict[str, Any]:
    """``grader`` as it may be shown to people and sent out: without the secret that signs its requests."""
    hidden = {key: "(not shown)" if key == "signing_secret" else value for key, value in grader.items()}
    if isinstance(parts := hidden.get("graders"), dict):
        hidden["graders"] = {name: shown(part) for name, part in parts.items()}
    return json.loads(json.dumps(hidden))
