"""Things to try the product with, made here and the tenant's own from then on: additions, which the small bundled model half knows;
questions about an invented country, which no model knows and the bundled search corpus answers in two steps; word problems, and notes to
read into JSON, for chat models.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from engine import almanac
from portal.datasets.actions import create_dataset
from portal.datasets.models import Dataset
from portal.rewards.actions import create_reward
from portal.rewards.models import Reward
from tenants.models import Tenant, User


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """``preset``: of ``portal.jobs.presets``, that goes with it. ``title`` and ``text``: what the gallery says of it."""

    title: str
    text: str
    dataset_name: str
    reward_name: str
    grader: dict[str, Any]
    rows: Callable[[], io.BytesIO]
    preset: str


def additions(rows: int, seed: int) -> io.BytesIO:
    """JSON Lines with ``rows`` different prompts."""
    pairs = random.Random(seed).sample([(a, b) for a in range(100) for b in range(100)], rows)
    return _lines({"prompt": f"{a}+{b}=", "answer": str(a + b)} for a, b in pairs)


def questions() -> io.BytesIO:
    """JSON Lines with the almanac's questions of two hops."""
    return _lines({"prompt": question.question, "answer": question.answer} for question in almanac.questions())


def word_problems(rows: int, seed: int) -> io.BytesIO:
    """JSON Lines with different problems of one step, each with its number."""
    chance, found = random.Random(seed), {}
    while len(found) < rows:
        name, other = chance.sample(_PEOPLE, 2)
        thing, a, b = chance.choice(_THINGS), chance.randrange(11, 60), chance.randrange(2, 10)
        story, answer = chance.choice(
            (
                (f"{name} has {a} {thing} and buys {b} more. How many {thing} does {name} have now?", a + b),
                (f"{name} has {a} {thing} and gives {b} of them to {other}. How many {thing} are left?", a - b),
                (f"{name} packs {b} boxes with {a} {thing} each. How many {thing} is that in all?", a * b),
            )
        )
        found[story] = {"prompt": f"{story} Think briefly, then end with the number.", "answer": str(answer)}
    return _lines(found.values())


def notes(rows: int, seed: int) -> io.BytesIO:
    """JSON Lines with different notes, each with what is to be read from it."""
    chance, found = random.Random(seed), {}
    while len(found) < rows:
        name, city, item = chance.choice(_PEOPLE), chance.choice(_CITIES), chance.choice(_THINGS)
        count = chance.randrange(2, 90)
        note = chance.choice((f"{name} from {city} orders {count} {item}.", f"Please send {count} {item} to {name}, who lives in {city}."))
        ask = 'Answer with JSON only, such as {"name": "…", "city": "…", "count": 1}.'
        found[note] = {"prompt": f"{note} {ask}", "name": name, "city": city, "count": str(count)}
    return _lines(found.values())


def _lines(rows: Iterable[dict[str, str]]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())


_PEOPLE = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Henry", "Ida", "Jonas", "Kim", "Lea", "Max", "Nora", "Oskar")
_THINGS = ("apples", "books", "cards", "cups", "eggs", "keys", "lamps", "marbles", "pens", "plums", "stamps", "tickets")
_CITIES = ("Athens", "Bergen", "Cairo", "Delhi", "Geneva", "Lima", "Lisbon", "Oslo", "Porto", "Quito", "Riga", "Tokyo")
_NOTE_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"type": "string"}, "count": {"type": "integer"}},
    "required": ["name", "city", "count"],
    "additionalProperties": False,
}


def _read(field: str) -> dict[str, str]:
    """Whether a field of the answer's JSON is what the row says."""
    return {"type": "string_check", "input": f"{{{{sample.output_json.{field}}}}}", "reference": f"{{{{item.{field}}}}}", "operation": "eq"}


SAMPLES = {
    "additions": Sample(
        title="Arithmetic",
        text="400 additions and a reward for the right number. Learns on the bundled model within a minute.",
        dataset_name="Sample: additions",
        reward_name="Sample: the right number",
        grader={"type": "numeric", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"},
        rows=lambda: additions(400, seed=0),
        preset="quick",
    ),
    "words": Sample(
        title="Word problems",
        text="300 short problems and a reward for the right number, for a small chat model.",
        dataset_name="Sample: word problems",
        reward_name="Sample: the number at the end",
        grader={"type": "numeric", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"},
        rows=lambda: word_problems(300, seed=0),
        preset="words",
    ),
    "json": Sample(
        title="JSON extraction",
        text="300 notes to be read into JSON. The reward is in parts: valid, and each field right.",
        dataset_name="Sample: notes to read into JSON",
        reward_name="Sample: JSON with the right fields",
        grader={
            "type": "multi",
            "graders": {
                "valid": {"type": "json_schema", "json_schema": _NOTE_SCHEMA},
                **{name: _read(name) for name in _NOTE_SCHEMA["required"]},
            },
            "calculate_output": "0.4 * valid + 0.2 * name + 0.2 * city + 0.2 * count",
        },
        rows=lambda: notes(300, seed=0),
        preset="words",
    ),
    "search": Sample(
        title="Tool search",
        text="104 questions of two hops about an invented country, whose almanac the model may search.",
        dataset_name="Sample: questions for a search agent",
        reward_name="Sample: the answer is named",
        grader={"type": "string_check", "input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "ilike"},
        rows=questions,
        preset="almanac",
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class KnownTask:
    """A public dataset to import, the kind of reward that grades it, and the preset of the paper's settings."""

    title: str
    text: str
    hub_name: str
    reward: str
    preset: str


KNOWN_TASKS = (
    KnownTask(
        title="GSM8K",
        text="Grade-school maths in words. The number after #### is the answer; reward numeric.",
        hub_name="openai/gsm8k",
        reward="numeric",
        preset="gsm8k",
    ),
    KnownTask(
        title="AMC12",
        text="Competition maths with an exact answer; reward math, which knows equal forms.",
        hub_name="AI-MO/aimo-validation-amc",
        reward="math",
        preset="amc12",
    ),
)


def ensure_sample(tenant: Tenant, user: User, sample: Sample) -> tuple[Dataset, Reward]:
    """The tenant's own, made on the first call. Raises ``Forbidden`` for viewers."""
    dataset = tenant.datasets.filter(name=sample.dataset_name).first() or create_dataset(tenant, user, sample.dataset_name, sample.rows())
    reward = tenant.rewards.filter(name=sample.reward_name).first() or create_reward(tenant, user, sample.reward_name, sample.grader)
    return dataset, reward
