"""Things to try the product with: additions, which the small bundled model half knows, and questions about an invented country, which no
model knows and the bundled search corpus answers in two steps."""

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
    """``preset``: of ``portal.jobs.presets``, that goes with it."""

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


def _lines(rows: Iterable[dict[str, str]]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())


SAMPLES = {
    "additions": Sample(
        dataset_name="Sample: additions",
        reward_name="Sample: the right number",
        grader={"type": "numeric", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"},
        rows=lambda: additions(400, seed=0),
        preset="quick",
    ),
    "search": Sample(
        dataset_name="Sample: questions for a search agent",
        reward_name="Sample: the answer is named",
        grader={"type": "string_check", "input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "ilike"},
        rows=questions,
        preset="almanac",
    ),
}


def ensure_sample(tenant: Tenant, user: User, sample: Sample) -> tuple[Dataset, Reward]:
    """The tenant's own, made on the first call. Raises ``Forbidden`` for viewers."""
    dataset = tenant.datasets.filter(name=sample.dataset_name).first() or create_dataset(tenant, user, sample.dataset_name, sample.rows())
    reward = tenant.rewards.filter(name=sample.reward_name).first() or create_reward(tenant, user, sample.reward_name, sample.grader)
    return dataset, reward
