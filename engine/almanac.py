"""The bundled search corpus: the almanac of an invented country, with questions that need two articles each.

    python -m engine.almanac articles > articles.jsonl
    python -m engine.almanac questions > questions.jsonl

No real model knows any of it, so an answer shows that the search was used. All of it follows from one seed: the articles are made when
they are needed, and are the same everywhere.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

SEED = 1881
RIVERS, TOWNS, PEOPLE, WORKS = 16, 36, 40, 32


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_FIRST = _words("Al Bre Cal Dor El Far Gar Hal Ist Jor Kel Lor Mar Nor Os Pel Quen Ras Sel Tor Ul Ver Wen Yar Zel")
_MIDDLE = ("a", "e", "i", "o")
_RIVER_END = ("dle", "mere", "ve", "ra", "nne", "sk", "th")
_TOWN_END = ("ford", "wick", "ham", "stead", "bury", "combe", "haven", "mouth")
_GIVEN = _words("Ada Bruno Clea Dario Edda Fenn Greta Hugo Ilse Jonas Kira Lars Mina Nils Orla Piet Runa Sven Tilda Urs Vera Wim")
_FAMILY_END = ("mar", "lund", "berg", "holt", "vik", "son", "dahl", "stern")
_HILLS = ("Grey", "Copper", "Salt", "Heather", "Lantern", "Otter", "Thistle", "Winter")
_REGIONS = ("Northmark", "the Lowlands", "Eastvale", "the Amber Coast", "Upper Saal", "the Hollow Country")
_PRODUCTS = ("glass", "cider", "clocks", "wool", "pottery", "honey", "paper", "bells", "cheese", "lace")
_WATERS = ("Lake Ammer", "the Bay of Tarn", "the Grey Sea", "Lake Sorrel")
_TRADES = {"painter": "a painting", "composer": "an opera", "novelist": "a novel", "engineer": "a bridge", "sculptor": "a statue"}
_QUALITIES = ("Silver", "Quiet", "Last", "Burning", "Hidden", "Broken", "Golden", "Long", "Distant", "Second", "Paper", "Hollow")
_THINGS = _words("Lamp Orchard Winter Mirror Ferry Falcon Tide Harvest Raven Window Garden Storm Shepherd Bell Voyage Candle")


@dataclass(frozen=True, kw_only=True, slots=True)
class Article:
    title: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """``needs``: titles of the two articles that the answer follows from; the second is not named in the question."""

    question: str
    answer: str
    needs: tuple[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class _River:
    name: str
    hills: str
    kilometres: int
    water: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Town:
    name: str
    region: str
    river: _River
    founded: int
    product: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Person:
    name: str
    trade: str
    town: _Town
    born: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Work:
    name: str
    maker: _Person
    year: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Country:
    rivers: Sequence[_River]
    towns: Sequence[_Town]
    people: Sequence[_Person]
    works: Sequence[_Work]


def articles() -> list[Article]:
    country = _country()
    return [
        *(_about_river(river, [town for town in country.towns if town.river == river]) for river in country.rivers),
        *map(_about_town, country.towns),
        *(_about_person(person, [work for work in country.works if work.maker == person]) for person in country.people),
        *map(_about_work, country.works),
    ]


def questions() -> list[Question]:
    """One question per person and two per work, in an order of its own."""
    country, found = _country(), []
    for person in country.people:
        question = f"On which river lies the town where the {person.trade} {person.name} was born?"
        found.append(Question(question=question, answer=person.town.river.name, needs=(person.name, person.town.name)))
    for work in country.works:
        what, maker = f"the {_TRADES[work.maker.trade].split()[1]} {work.name}", work.maker
        needs = (work.name, maker.name)
        found.append(Question(question=f"In which town was the maker of {what} born?", answer=maker.town.name, needs=needs))
        found.append(Question(question=f"In which year was the maker of {what} born?", answer=str(maker.born), needs=needs))
    random.Random(SEED).shuffle(found)
    return found


@cache
def _country() -> _Country:
    chance, taken = random.Random(SEED), set[str]()
    rivers = [
        _River(
            name=_new_name(chance, taken, _RIVER_END),
            hills=f"the {chance.choice(_HILLS)} Hills",
            kilometres=chance.randrange(40, 400),
            water=chance.choice(_WATERS),
        )
        for _ in range(RIVERS)
    ]
    towns = [
        _Town(
            name=_new_name(chance, taken, _TOWN_END),
            region=chance.choice(_REGIONS),
            river=rivers[number % RIVERS],
            founded=chance.randrange(1100, 1700),
            product=chance.choice(_PRODUCTS),
        )
        for number in range(TOWNS)
    ]
    people = [_person(chance, taken, towns) for _ in range(PEOPLE)]
    works = [_work(chance, taken, chance.choice(people)) for _ in range(WORKS)]
    return _Country(rivers=rivers, towns=towns, people=people, works=works)


def _person(chance: random.Random, taken: set[str], towns: Sequence[_Town]) -> _Person:
    name = f"{chance.choice(_GIVEN)} {_new_name(chance, taken, _FAMILY_END)}"
    return _Person(name=name, trade=chance.choice(list(_TRADES)), town=chance.choice(towns), born=chance.randrange(1740, 1900))


def _work(chance: random.Random, taken: set[str], maker: _Person) -> _Work:
    while (name := f"The {chance.choice(_QUALITIES)} {chance.choice(_THINGS)}") in taken:
        pass
    taken.add(name)
    return _Work(name=name, maker=maker, year=maker.born + chance.randrange(22, 60))


def _new_name(chance: random.Random, taken: set[str], ends: Sequence[str]) -> str:
    while (name := chance.choice(_FIRST) + chance.choice(_MIDDLE) + chance.choice(ends)) in taken:
        pass
    taken.add(name)
    return name


def _about_river(river: _River, towns: Sequence[_Town]) -> Article:
    passed = ", ".join(town.name for town in towns)
    text = f"The {river.name} is a river that rises in {river.hills} and flows {river.kilometres} kilometres to {river.water}."
    return Article(title=river.name, text=f"{text} Towns on its banks: {passed}.")


def _about_town(town: _Town) -> Article:
    text = f"{town.name} is a town in {town.region} on the river {town.river.name}. It was founded in {town.founded}"
    return Article(title=town.name, text=f"{text} and is known for its {town.product}.")


def _about_person(person: _Person, works: Sequence[_Work]) -> Article:
    article = "an" if person.trade == "engineer" else "a"
    text = f"{person.name} was {article} {person.trade}, born in {person.town.name} in {person.born}."
    made = f" Among the works: {', '.join(work.name for work in works)}." if works else ""
    return Article(title=person.name, text=text + made)


def _about_work(work: _Work) -> Article:
    return Article(title=work.name, text=f"{work.name} is {_TRADES[work.maker.trade]} by {work.maker.name}, finished in {work.year}.")


def _lines(what: str) -> Iterator[dict[str, str]]:
    if what == "articles":
        yield from ({"title": article.title, "text": article.text} for article in articles())
    else:
        yield from ({"prompt": question.question, "answer": question.answer} for question in questions())


def main(arguments: Sequence[str]) -> int:
    if list(arguments) not in (["articles"], ["questions"]):
        print("usage: python -m engine.almanac articles|questions", file=sys.stderr)
        return 2
    for line in _lines(arguments[0]):
        print(json.dumps(line, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
