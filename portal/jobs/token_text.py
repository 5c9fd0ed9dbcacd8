"""A completion's tokens as text, piece by piece, with a class for each piece's colour."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from portal.datasets.tokenizer_files import tokenizer_path

LONGEST_CHARACTER = 8  # tokens: more than any character takes
SHADES = 5
BY_ADVANTAGE, BY_PROBABILITY, BY_MISMATCH = "advantage", "probability", "mismatch"
# Where a shade begins, in nats: beyond the first the two programs compute differently, at the last they are of two opinions.
GAPS = (0.01, 0.05, 0.2, 0.5)


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """``tone``: the class of its colour; ``told``: what a pointer over it is told."""

    text: str
    tone: str
    told: str


def pieces(model: str, completion: dict[str, Any], *, by: str, most: float) -> list[Piece]:
    """``most``: the largest advantage of the group, which has the deepest shade. Raises ``NoTokenizer``."""
    tokenizer = _tokenizer(str(tokenizer_path(model)))
    logprobs = iter(completion["logprobs"])
    gaps = iter(completion.get("mismatch") or ())
    shown = []
    for text, places in _texts(tokenizer, completion["completion_ids"], _sampled(completion)):
        if not places:
            shown.append(Piece(text=text, tone="added", told="Said by the environment: read, never trained on"))
            continue
        chance = [next(logprobs, 0.0) for _ in range(places)]
        gap = _largest([next(gaps, None) for _ in range(places)])
        shown.append(_piece(text, chance, gap, completion["advantage"], by, most))
    return shown


def _largest(gaps: Sequence[float | None]) -> float | None:
    """Of several tokens that make one character; None where none is known."""
    return max((gap for gap in gaps if gap is not None), key=abs, default=None)


def _piece(text: str, logprobs: Sequence[float], gap: float | None, advantage: float, by: str, most: float) -> Piece:
    probability = 2.718281828459045 ** (sum(logprobs) / len(logprobs))
    told = f"probability {probability:.3f} when sampled, advantage {advantage:+.3f}"
    if gap is not None:
        told += f", the trainer's log-probability differs by {gap:+.2g}"
    if by == BY_MISMATCH:
        return Piece(text=text, tone="even" if gap is None else f"gap-{1 + bisect_right(GAPS, abs(gap))}", told=told)
    if by == BY_PROBABILITY:
        return Piece(text=text, tone=f"odds-{min(SHADES, 1 + int((1 - probability) * SHADES))}", told=told)
    if not advantage or not most:
        return Piece(text=text, tone="even", told=told)
    shade = max(1, min(SHADES, round(SHADES * abs(advantage) / most)))
    return Piece(text=text, tone=f"{'up' if advantage > 0 else 'down'}-{shade}", told=told)


def _sampled(completion: dict[str, Any]) -> list[bool]:
    turns = completion["turns"]
    if not turns:
        return [True] * len(completion["completion_ids"])
    return [own for turn in turns for own in [True] * turn["sampled"] + [False] * turn["added"]]


def _texts(tokenizer: Any, ids: Sequence[int], sampled: Sequence[bool]) -> Iterator[tuple[str, int]]:
    """(text, how many sampled tokens), whole characters only; tokens of the environment come together, as (text, 0)."""
    start = 0
    for end in range(1, len(ids) + 1):
        own = sampled[start]
        broken = end < len(ids) and sampled[end] == own and _unfinished(tokenizer, ids, start, end, own)
        if not broken:
            yield _text(tokenizer, ids, start, end), end - start if own else 0
            start = end


def _unfinished(tokenizer: Any, ids: Sequence[int], start: int, end: int, own: bool) -> bool:
    if not own:
        return True
    return end - start < LONGEST_CHARACTER and _text(tokenizer, ids, start, end).endswith("\ufffd")


def _text(tokenizer: Any, ids: Sequence[int], start: int, end: int) -> str:
    """Of ``ids[start:end]`` as they read after the token before: some decoders drop a leading space."""
    if start == 0:
        return tokenizer.decode(list(ids[:end]), skip_special_tokens=False)
    before = tokenizer.decode([ids[start - 1]], skip_special_tokens=False)
    return tokenizer.decode(list(ids[start - 1 : end]), skip_special_tokens=False)[len(before) :]


@lru_cache(maxsize=8)
def _tokenizer(path: str) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(path)
