"""Short arithmetic word problems of our own writing, for chat models that read English. One step of + or −, or a small product."""

from __future__ import annotations

import random

NAMES = ("Ada", "Ben", "Chen", "Dina", "Emil", "Fatima", "Gus", "Hana", "Ivo", "Jun", "Kofi", "Lena", "Mira", "Noor", "Omar", "Pia")
THINGS = ("apples", "books", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "stickers", "tickets")
BOXES = ("bags", "boxes", "baskets", "jars", "drawers")
ASK = "Answer with the number only."

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


def word_problem(rng: random.Random) -> tuple[str, str]:
    """One problem as (prompt, answer); the answer is a non-negative whole number."""
    words = {"name": rng.choice(NAMES), "things": rng.choice(THINGS), "boxes": rng.choice(BOXES)}
    kind = rng.choice(("gain", "loss", "product"))
    if kind == "gain":
        a, b = rng.randint(2, 50), rng.randint(2, 50)
        text, answer = rng.choice(GAIN), a + b
    elif kind == "loss":
        b, a = sorted((rng.randint(2, 50), rng.randint(2, 50)))
        text, answer = rng.choice(LOSS), a - b
    else:
        a, b = rng.randint(2, 9), rng.randint(2, 9)
        text, answer = rng.choice(PRODUCT), a * b
    return f"{text.format(a=a, b=b, **words)} {ASK}", str(answer)
