"""Who trains what: the demo's tenants, their datasets, rewards and jobs, by base model. Values only."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from engine.models import tasks

DOMAIN = "demo.localhost"
# Most rows are held out: then the held-out reward does not jump by chance, and three steps make an epoch, so that the first and the
# last three steps see the same prompts and their difference says nothing about which prompts were drawn.
EVAL_SHARE = 2 / 3
STEPS_PER_EPOCH = 3


@dataclass(frozen=True, kw_only=True)
class Order:
    """One tenant's job. ``spec``: what goes into POST /jobs besides the dataset and the reward."""

    tenant: str
    person: str
    task: str
    rows: int
    grader: dict[str, Any]
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def email(self) -> str:
        return f"{self.person.lower()}@{DOMAIN}"

    def dataset(self) -> bytes:
        """JSON Lines with different prompts; the portal holds out a share of them."""
        return b"".join(json.dumps(row).encode() + b"\n" for row in tasks.rows(self.task, count=self.rows, seed=7))


EXACT = {"type": "string_check", "input": "{{sample.output_text}}", "reference": "{{item.answer}}", "operation": "eq"}
NUMBER = {"type": "numeric", "input": "{{sample.output_text}}", "reference": "{{item.answer}}"}


def orders(model: str, learning_rate: float | None) -> list[Order]:
    """The demo's jobs on ``model``. ``learning_rate`` replaces the usual one; 0 makes the control run, in which nothing may move."""
    return _arithmetic(model, 1e-3 if learning_rate is None else learning_rate) if model == "tiny-math" else _words(model, learning_rate)


def _arithmetic(model: str, learning_rate: float) -> list[Order]:
    # The control looks for a movement of nothing, so it samples three times as much: at 16 × 8 chance alone moves the mean of three steps
    # by 0.03, at 24 × 16 by 0.02.
    prompts, group = (16, 8) if learning_rate else (24, 16)
    rows = STEPS_PER_EPOCH * prompts
    spec = {
        "base_model": model,
        "rollout": {"prompts_per_step": prompts, "group_size": group, "max_prompt_tokens": 24, "max_new_tokens": 8, "temperature": 1.0},
        "lora": {"rank": 16, "alpha": 32},
        "train": {"steps": 30, "learning_rate": learning_rate},
        "eval": {"every": 1, "max_rows": round(EVAL_SHARE / (1 - EVAL_SHARE)) * rows},
        "seed": 7,
    }
    tenants = [
        ("Abacus Labs", "Ada", "add", NUMBER),
        ("Borealis Research", "Bela", "max", NUMBER),
        ("Cormorant Systems", "Cleo", "reverse", EXACT),
    ]
    return [
        Order(tenant=tenant, person=person, task=task, rows=round(rows / (1 - EVAL_SHARE)), grader=grader, spec=spec)
        for tenant, person, task, grader in tenants
    ]


def _words(model: str, learning_rate: float | None) -> list[Order]:
    spec = {
        "base_model": model,
        "rollout": {"prompts_per_step": 4, "group_size": 8, "max_prompt_tokens": 224, "max_new_tokens": 24, "temperature": 1.0},
        "lora": {"rank": 16, "alpha": 32},
        "train": {"steps": 6, "learning_rate": 1e-4 if learning_rate is None else learning_rate},
        "eval": {"max_rows": 16},
        "seed": 7,
    }
    return [Order(tenant="Abacus Labs", person="Ada", task="words", rows=240, grader=NUMBER, spec=spec)]
