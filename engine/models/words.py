"""Short arithmetic word problems of our own writing, for chat models that read English: one step of +, − or ×, small numbers.

A row's messages show three solved problems first. That makes a model of 135 million parameters answer in one short line, right about a
quarter of the time at temperature 1: room to learn in both directions.
"""

from __future__ import annotations

import random

NAMES = ("Ada", "Ben", "Chen", "Dina", "Emil", "Fatima", "Gus", "Hana", "Ivo", "Jun", "Kofi", "Lena", "Mira", "Noor", "Omar", "Pia")
THINGS = ("apples", "books", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "stickers", "tickets")
BOXES = ("bags", "boxes", "baskets", "jars", "drawers")

GAIN = (
    "{name} has {a} {things} and gets {b} more. How many {things} does {name} have now?",
    "{name} finds {a} {things} in the morning and {b} {things} in the evening. How many {things} is that together?",
    "There are {a} {things} on the table. {name} puts {b} more there. How many {things} are on the table?",
)
LOSS = (
    "{name} has {a} {things} and gives away {b}. How many {things} are left?",
    "{name} had {a} {things} but lost {b} of them. How many {things} does {name} still have?",
    "There were {a} {things}. {name} took {b}. How many {things} remain?",
)
PRODUCT = (
    "{name} has {a} {boxes} with {b} {things} in each. How many {things} does {name} have?",
    "Each of {a} {boxes} holds {b} {things}. How many {things} are there in all?",
)
EXAMPLES = (
    ("Ann has 4 pens and gets 3 more. How many pens does Ann have now?", "4 + 3 = 7"),
    ("There were 9 cups. Tom took 5. How many cups remain?", "9 - 5 = 4"),
    ("Each of 3 bags holds 4 nuts. How many nuts are there in all?", "3 * 4 = 12"),
)


def word_problem(rng: random.Random) -> tuple[str, str]:
    """One problem as (question, answer); the answer is a non-negative whole number."""
    words = {"name": rng.choice(NAMES), "things": rng.choice(THINGS), "boxes": rng.choice(BOXES)}
    kind = rng.choice(("gain", "loss", "product"))
    if kind == "gain":
        a, b = rng.randint(2, 12), rng.randint(2, 12)
        text, answer = rng.choice(GAIN), a + b
    elif kind == "loss":
        b, a = sorted((rng.randint(2, 12), rng.randint(2, 12)))
        text, answer = rng.choice(LOSS), a - b
    else:
        a, b = rng.randint(2, 6), rng.randint(2, 6)
        text, answer = rng.choice(PRODUCT), a * b
    return text.format(a=a, b=b, **words), str(answer)


def with_examples(question: str) -> list[dict[str, str]]:
    """Chat messages: the solved examples, then ``question``."""
    turns = [({"role": "user", "content": asked}, {"role": "assistant", "content": solved}) for asked, solved in EXAMPLES]
    return [message for pair in turns for message in pair] + [{"role": "user", "content": question}]
