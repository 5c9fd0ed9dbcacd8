"""What the viewer of completions asks the engine for, and what it makes of the answer."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from portal.datasets.tokenizer_files import NoTokenizer
from portal.jobs import engines, token_text
from portal.jobs.models import Job
from portal.query import choice, decimal, text, whole

GROUPS_PER_PAGE = 8
MOST_GROUPS = 100
WHOLE = ("version", "row", "sample", "length_min", "length_max", "offset")
DIFF_CHARACTERS = 20_000
ENDINGS = {
    "stop": "The model ended it",
    "length": "Cut at its longest",
    "calls": "No calls left",
    "seconds": "No time left",
    "turns": "No turns left",
}
KEPT = {"all": "All groups", "kept": "Trained on", "dropped": "Dropped"}
COLOURS = {"": "Plain", token_text.BY_ADVANTAGE: "Advantage", token_text.BY_PROBABILITY: "Probability", token_text.BY_MISMATCH: "Mismatch"}
_WORD = re.compile(r"\s+|\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """What stands in the address of the viewer. ``version``: None is the newest that is finished."""

    version: int | None = None
    every: bool = False
    row: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    length_min: int | None = None
    length_max: int | None = None
    finish: str = ""
    text: str = ""
    kept: str = "all"
    colour: str = ""
    page: int = 1

    @classmethod
    def of(cls, request: HttpRequest) -> Filter:
        numbers = {name: _number(request, name) for name in ("version", "row", "length_min", "length_max")}
        return cls(
            **numbers,
            every=choice(request, "every", ("0", "1")) == "1",
            reward_min=decimal(request, "reward_min"),
            reward_max=decimal(request, "reward_max"),
            finish=choice(request, "finish", ENDINGS, noun="ending"),
            text=text(request, "text"),
            kept=choice(request, "kept", KEPT, "all", noun="kind of groups"),
            colour=colour_of(request),
            page=max(1, whole(request, "page", 1)),
        )

    def address(self, **changes: Any) -> str:
        """The query of this filter with ``changes``, without what is as it would be anyway."""
        values = {**asdict(self), "page": 1, **changes}
        usual = asdict(Filter())
        return urlencode({name: int(value) if value is True else value for name, value in values.items() if value != usual[name]})

    @property
    def cleared(self) -> str:
        """The query of the same step, all of it, in the same colours."""
        return Filter(version=self.version, colour=self.colour).address()

    @property
    def narrows(self) -> bool:
        return bool(asdict(self) | {"version": None, "every": False, "page": 1, "colour": ""} != asdict(Filter()))


def colour_of(request: HttpRequest) -> str:
    """What tokens are coloured by, which goes along from page to page: one of ``COLOURS``."""
    return choice(request, "colour", COLOURS, noun="colouring")


def colouring(request: HttpRequest) -> dict[str, Any]:
    """For pages with coloured tokens: ``colour``, the choices as (key, word, query of this page), and ``with_colour``, which links to other
    such pages carry.
    """
    colour = colour_of(request)
    choices = [(key, word, _recoloured(request, key)) for key, word in COLOURS.items()]
    return {"colour": colour, "colours": choices, "with_colour": f"?colour={colour}" if colour else ""}


def _recoloured(request: HttpRequest, colour: str) -> str:
    query = request.GET.copy()
    query.pop("colour", None)
    if colour:
        query["colour"] = colour
    return query.urlencode()


def page(job: Job, wanted: Filter) -> dict[str, Any]:
    """{groups, version, attempt, total, next}. Raises ``gateway.EngineDown`` and ``gateway.EngineRefused``."""
    asked = {name: value for name, value in asdict(wanted).items() if name not in ("page", "colour", "every")}
    offset = 0 if wanted.every else (wanted.page - 1) * GROUPS_PER_PAGE
    more = {"offset": offset, "limit": GROUPS_PER_PAGE, "tokens": bool(wanted.colour), "every": wanted.every}
    found = engines.of(job).groups(job.public_id, **asked, **more)
    for group in found["groups"]:
        group.setdefault("version", found.get("version"))
        _dress(job, group, wanted.colour)
    return found


def mismatch_known(groups: Iterable[dict[str, Any] | None]) -> bool:
    """Of some completion here, where tokens are coloured."""
    return any(completion.get("mismatch") for group in groups if group for completion in group["completions"])


def one(job: Job, version: int, row: int, sample: int, colour: str) -> dict[str, Any] | None:
    """The group of a single completion, which is ``group["one"]``; None where there is none."""
    found = engines.of(job).groups(job.public_id, version=version, row=row, sample=sample, tokens=bool(colour), limit=1)
    for group in found["groups"]:
        group |= {"version": found["version"], "attempt": found["attempt"]}
        _dress(job, group, colour)
        group["one"] = next((completion for completion in group["completions"] if completion["sample"] == sample), None)
        return group if group["one"] else None
    return None


def compared(job: Job, row: int, before: int, after: int, colour: str) -> dict[str, Any]:
    """The same prompt at two versions: both groups, and how the best completion of the one differs from the best of the other."""
    sides = [_group(job, row, version, colour) for version in (before, after)]
    bests = [max(side["completions"], key=_worth, default=None) if side else None for side in sides]
    return {"sides": sides, "bests": bests, "diff": diff(bests[0]["text"], bests[1]["text"]) if all(bests) else None}


def diff(before: str, after: str) -> list[tuple[str, str]]:
    """(same | gone | new, text), word by word."""
    old, new = (_WORD.findall(side[:DIFF_CHARACTERS]) for side in (before, after))
    parts: list[tuple[str, str]] = []
    for what, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if what == "equal":
            parts.append(("same", "".join(old[a:b])))
            continue
        parts += [(kind, "".join(words)) for kind, words in (("gone", old[a:b]), ("new", new[c:d])) if words]
    return parts


def _group(job: Job, row: int, version: int, colour: str) -> dict[str, Any] | None:
    groups = engines.of(job).groups(job.public_id, version=version, row=row, tokens=bool(colour), limit=1)["groups"]
    for group in groups:
        group["version"] = version
        _dress(job, group, colour)
    return groups[0] if groups else None


def _dress(job: Job, group: dict[str, Any], colour: str) -> None:
    most = max((abs(completion["advantage"]) for completion in group["completions"]), default=0.0)
    for completion in group["completions"]:
        completion["ending"] = ENDINGS.get(completion["finish_reason"], completion["finish_reason"])
        completion["signed"] = f"{completion['advantage']:+.2f}".replace("-", "−")
        completion["pieces"] = _pieces(job, completion, colour, most) if colour else None


def _pieces(job: Job, completion: dict[str, Any], colour: str, most: float) -> list[token_text.Piece] | None:
    try:
        return token_text.pieces(job.base_model, completion, by=colour, most=most)
    except NoTokenizer:
        return None  # the text is shown plain, and the page says why there are no colours


def _worth(completion: dict[str, Any]) -> tuple[float, int]:
    return (float("-inf") if completion["reward"] is None else completion["reward"], -completion["sample"])


def _number(request: HttpRequest, name: str) -> int | None:
    found = whole(request, name, -1)
    return None if found < 0 else found
