"""Arithmetic word problems of our own, of five levels: from one step with small numbers to four steps with a share or a remainder.

Pure and seeded: the same (rows, seed, level) give the same problems, and no problem appears twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

LEVELS = {1: "one step, small numbers", 2: "one step, larger numbers", 3: "two steps", 4: "three steps", 5: "four steps, with shares"}
MAX_ROWS = 1_000_000
_MISSES = 200
_PEOPLE = (
    "Anouk",
    "Bilal",
    "Carmen",
    "Dmitri",
    "Esi",
    "Farid",
    "Greta",
    "Hiro",
    "Ines",
    "Jonas",
    "Kaya",
    "Luca",
    "Maya",
    "Nils",
    "Oya",
    "Petra",
)
_GOODS = (
    "buttons",
    "candles",
    "cards",
    "cherries",
    "envelopes",
    "feathers",
    "lemons",
    "nails",
    "pebbles",
    "plates",
    "ribbons",
    "seeds",
    "tiles",
)
_HOLDERS = ("crates", "bowls", "shelves", "trays", "sacks", "envelopes", "cupboards")
_PLACES = ("market", "workshop", "school", "harbour", "library", "bakery")


class Exhausted(ValueError):
    """There are fewer different problems of this kind than were asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    text: str
    answer: int
    template: str


def rows(count: int, *, seed: int, level: int) -> Iterator[dict[str, Any]]:
    """``count`` rows of prompt, answer (text), level and template. Raises ``Exhausted``, and ``ValueError`` for arguments out of range."""
    if level not in LEVELS or not 1 <= count <= MAX_ROWS:
        raise ValueError(f"level must be 1 to {max(LEVELS)} and rows 1 to {MAX_ROWS:,}")
    rng = random.Random(f"{seed}/{level}")
    seen: set[int] = set()
    for _ in range(count):
        problem = _fresh(rng, level, seen)
        yield {"prompt": problem.text, "answer": str(problem.answer), "level": level, "template": problem.template}


def _fresh(rng: random.Random, level: int, seen: set[int]) -> Problem:
    for _ in range(_MISSES):
        problem = rng.choice(_TEMPLATES[level])(rng)
        key = int.from_bytes(blake2b(problem.text.encode(), digest_size=8).digest())
        if key not in seen:
            seen.add(key)
            return problem
    raise Exhausted(f"there are only about {len(seen):,} different problems of level {level}; ask for fewer rows or a higher level")


def _words(rng: random.Random) -> dict[str, str]:
    one, other = rng.sample(_PEOPLE, 2)
    return {"one": one, "other": other, "goods": rng.choice(_GOODS), "holders": rng.choice(_HOLDERS), "place": rng.choice(_PLACES)}


def _gain(top: int) -> Callable[[random.Random], Problem]:
    def make(rng: random.Random) -> Problem:
        a, b, w = rng.randint(2, top), rng.randint(2, top), _words(rng)
        text = f"{w['one']} keeps {a} {w['goods']} at the {w['place']} and brings {b} more. How many {w['goods']} are there now?"
        return Problem(text=text, answer=a + b, template="gain")

    return make


def _loss(top: int) -> Callable[[random.Random], Problem]:
    def make(rng: random.Random) -> Problem:
        left, taken, w = rng.randint(1, top), rng.randint(2, top), _words(rng)
        text = f"{w['one']} had {left + taken} {w['goods']}. {w['other']} took {taken} of them to the {w['place']}. How many are left?"
        return Problem(text=text, answer=left, template="loss")

    return make


def _rows_of(top: int) -> Callable[[random.Random], Problem]:
    def make(rng: random.Random) -> Problem:
        a, b, w = rng.randint(2, top), rng.randint(2, top), _words(rng)
        text = f"{w['one']} fills {a} {w['holders']} with {b} {w['goods']} each. How many {w['goods']} does {w['one']} need?"
        return Problem(text=text, answer=a * b, template="product")

    return make


def _gain_and_loss(rng: random.Random) -> Problem:
    a, b, w = rng.randint(10, 90), rng.randint(10, 90), _words(rng)
    gone = rng.randint(2, a + b - 1)
    text = (
        f"{w['one']} has {a} {w['goods']} and {w['other']} has {b}. They put them together and sell {gone} at the {w['place']}. "
        f"How many {w['goods']} do they still have?"
    )
    return Problem(text=text, answer=a + b - gone, template="pool")


def _trays_and_more(rng: random.Random) -> Problem:
    a, b, more, w = rng.randint(3, 12), rng.randint(3, 12), rng.randint(2, 40), _words(rng)
    text = f"There are {a} {w['holders']} with {b} {w['goods']} each, and {more} loose ones beside them. How many {w['goods']} is that?"
    return Problem(text=text, answer=a * b + more, template="product_and_more")


def _twice_as_many(rng: random.Random) -> Problem:
    a, times, w = rng.randint(4, 40), rng.randint(2, 5), _words(rng)
    more = rng.randint(2, 20)
    text = (
        f"{w['one']} collects {a} {w['goods']}. {w['other']} collects {times} times as many, and then {more} more. "
        f"How many {w['goods']} do the two have together?"
    )
    return Problem(text=text, answer=a + a * times + more, template="times")


def _shared_equally(rng: random.Random) -> Problem:
    people, each, spoiled, w = rng.randint(2, 9), rng.randint(3, 25), rng.randint(1, 15), _words(rng)
    total = people * each + spoiled
    first = rng.randint(1, total - 1)
    text = (
        f"On Monday {first} {w['goods']} reach the {w['place']}, on Tuesday {total - first}. {spoiled} of them are broken. "
        f"The others are shared equally among {people} people. How many {w['goods']} does each person get?"
    )
    return Problem(text=text, answer=each, template="share")


def _price(rng: random.Random) -> Problem:
    a, price_a, b, price_b, w = rng.randint(2, 9), rng.randint(2, 12), rng.randint(2, 9), rng.randint(2, 12), _words(rng)
    change = rng.randint(1, 50)
    paid = a * price_a + b * price_b + change
    other = rng.choice([goods for goods in _GOODS if goods != w["goods"]])
    text = (
        f"{w['one']} buys {a} {w['goods']} at {price_a} coins each and {b} {other} at {price_b} coins each, and pays with {paid} coins. "
        f"How many coins does {w['one']} get back?"
    )
    return Problem(text=text, answer=change, template="change")


def _left_over(rng: random.Random) -> Problem:
    holders, size, given, w = rng.randint(3, 12), rng.randint(4, 15), rng.randint(2, 30), _words(rng)
    rest = rng.randint(1, size - 1)
    text = (
        f"{w['one']} has {holders * size + rest + given} {w['goods']} and gives {given} of them to {w['other']}. The rest is packed into "
        f"{w['holders']} of {size}, as many full ones as possible. How many {w['goods']} stay unpacked?"
    )
    return Problem(text=text, answer=rest, template="remainder")


def _weeks(rng: random.Random) -> Problem:
    per_day, days, weeks, w = rng.randint(2, 9), rng.randint(2, 6), rng.randint(2, 8), _words(rng)
    made, heaps = per_day * days * weeks, rng.randint(2, 5)
    each = rng.randint(1, max(1, (made - 1) // heaps))
    text = (
        f"{w['one']} makes {per_day} {w['goods']} a day, {days} days a week, for {weeks} weeks. {made - heaps * each} of them are used up, "
        f"and the others are divided into {heaps} equal heaps. How many {w['goods']} are in each heap?"
    )
    return Problem(text=text, answer=each, template="weeks")


_TEMPLATES: dict[int, tuple[Callable[[random.Random], Problem], ...]] = {
    1: (_gain(12), _loss(12), _rows_of(6)),
    2: (_gain(500), _loss(500), _rows_of(25)),
    3: (_gain_and_loss, _trays_and_more, _twice_as_many),
    4: (_shared_equally, _twice_as_many, _left_over),
    5: (_price, _weeks, _shared_equally),
}
