"""Seeded generators of dataset rows with checkable answers: ``{"prompt": "12+7=", "answer": "19"}``.

Four tasks of the bundled ``tiny-math`` model (add, subtract, max, reverse), and short word problems for real chat models, whose rows hold
``messages`` instead of ``prompt``.
A prompt belongs to the train or to the eval split by its hash, so the two are disjoint whatever seeds and sizes are asked for.
Standard library only.

    python -m engine.models.tasks add --rows 500 --seed 1 > add.jsonl
    python -m engine.models.tasks add --rows 200 --seed 1 --split eval > add-eval.jsonl
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import string
import sys
from collections.abc import Callable, Sequence
from typing import Any, Literal

from engine.models.words import with_examples, word_problem

Split = Literal["train", "eval"]
Draw = Callable[[random.Random], tuple[str, str]]

EVAL_SHARE_PERCENT = 20
# A task whose prompts run out would loop for ever: give up after this many draws per wanted row.
MAX_DRAWS_PER_ROW = 50


class TooFewPrompts(ValueError):
    """The task has not that many different prompts in the split."""


def add(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randrange(100), rng.randrange(100)
    return f"{a}+{b}=", str(a + b)


def subtract(rng: random.Random) -> tuple[str, str]:
    b, a = sorted((rng.randrange(100), rng.randrange(100)))
    return f"{a}-{b}=", str(a - b)


def maximum(rng: random.Random) -> tuple[str, str]:
    a, b = rng.randrange(1000), rng.randrange(1000)
    return f"max {a} {b}=", str(max(a, b))


def reverse(rng: random.Random) -> tuple[str, str]:
    word = "".join(rng.choice(string.ascii_lowercase) for _ in range(rng.randint(3, 4)))
    return f"reverse {word}=", word[::-1]


TASKS: dict[str, Draw] = {"add": add, "subtract": subtract, "max": maximum, "reverse": reverse, "words": word_problem}
TINY_TASKS = ("add", "subtract", "max", "reverse")


def split_of(prompt: str) -> Split:
    """Which split owns ``prompt``: a pure function of its text."""
    return "eval" if int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big") % 100 < EVAL_SHARE_PERCENT else "train"


def rows(task: str, *, count: int, seed: int, split: Split = "train") -> list[dict[str, Any]]:
    """``count`` rows of ``task`` with different prompts, all of ``split``; the same arguments give the same rows.

    Raises ``KeyError`` for an unknown task and ``TooFewPrompts`` when the task cannot fill the split.
    """
    draw, rng = TASKS[task], random.Random(f"{task}/{split}/{seed}")
    found: dict[str, str] = {}
    for _ in range(count * MAX_DRAWS_PER_ROW):
        if len(found) == count:
            break
        prompt, answer = draw(rng)
        if split_of(prompt) == split:
            found[prompt] = answer
    if len(found) < count:
        raise TooFewPrompts(f"{task} has only about {len(found)} different {split} prompts, {count} were asked for")
    return [_row(task, prompt, answer) for prompt, answer in found.items()]


def _row(task: str, prompt: str, answer: str) -> dict[str, Any]:
    return {"messages": with_examples(prompt), "answer": answer} if task == "words" else {"prompt": prompt, "answer": answer}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m engine.models.tasks", description="Write dataset rows as JSONL.")
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=("train", "eval"), default="train")
    options = parser.parse_args(arguments)
    try:
        made = rows(options.task, count=options.rows, seed=options.seed, split=options.split)
    except TooFewPrompts as error:
        print(error, file=sys.stderr)
        return 2
    for row in made:
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
