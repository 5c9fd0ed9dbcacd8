"""English numbers in words: "seventy-two", "one hundred and five", "two and a half", "three quarters", "minus twelve thousand"."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_TEENS = ("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen")
_SMALL = {word: value for value, word in enumerate(_ONES + _TEENS)}
_TENS = {word: 10 * value for value, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), 2)}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {
    **{"half": 2, "halves": 2, "quarter": 4, "quarters": 4, "third": 3, "thirds": 3, "fourth": 4, "fourths": 4},
    **{"fifth": 5, "fifths": 5, "sixth": 6, "sixths": 6, "eighth": 8, "eighths": 8, "tenth": 10, "tenths": 10},
}
_COUNTS = {**_SMALL, **_TENS, "hundred": 100, **_SCALES, "dozen": 12}
_WORD = re.compile("[a-z]+")
# "the other one", "no one": a pronoun, and no number.
_PRONOUN = ("no", "any", "every", "some", "each", "the", "this", "that", "which", "another", "other", "right", "correct", "wrong", "good")


@dataclass(frozen=True, kw_only=True, slots=True)
class Spelled:
    """``start`` and ``end``: where its words stand."""

    value: Fraction
    start: int
    end: int


def last_number(text: str) -> Spelled | None:
    """The last spelled number of ``text``; None when there is none."""
    words = list(_WORD.finditer(text.lower()))[-400:]
    position = len(words)
    while position > 0:
        position -= 1
        if words[position][0] in _COUNTS or words[position][0] in _PARTS:
            begin = position
            while begin > 0 and _joined(text, words[begin - 1], words[begin]) and words[begin - 1][0] in _CONNECTED:
                begin -= 1
            run = words[begin : position + 1]
            while run and run[0][0] == "and":
                run = run[1:]
            value = _value([word[0] for word in run])
            if value is not None and not _is_pronoun(words, begin, run):
                return Spelled(value=value, start=run[0].start(), end=run[-1].end())
            position = begin
    return None


_CONNECTED = {*_COUNTS, *_PARTS, "and", "a", "an", "minus", "negative"}


def _joined(text: str, first: re.Match[str], second: re.Match[str]) -> bool:
    return text[first.end() : second.start()] in (" ", "-", "\u2010", "\u2011", ", ", "  ")


def _is_pronoun(words: list[re.Match[str]], begin: int, run: list[re.Match[str]]) -> bool:
    return [word[0] for word in run] == ["one"] and begin > 0 and words[begin - 1][0] in _PRONOUN


def _value(words: list[str]) -> Fraction | None:
    """The value of a run of number words; None when they make no number ("a", "and", "five six")."""
    negative = bool(words) and words[0] in ("minus", "negative")
    words = words[1:] if negative else words
    if not words:
        return None
    value = _fraction(words) if words[-1] in _PARTS else _whole(words)
    return None if value is None else -value if negative else value


def _fraction(words: list[str]) -> Fraction | None:
    """ "three quarters", "half", "a half", "two and a half", "one and two thirds"."""
    part, before = Fraction(1, _PARTS[words[-1]]), words[:-1]
    if "and" in before:
        cut = len(before) - 1 - before[::-1].index("and")
        whole, many = _whole(before[:cut]), _whole(before[cut + 1 :] or ["one"])
        return None if whole is None or many is None else whole + many * part
    many = _whole(before or ["one"])
    return None if many is None else many * part


def _whole(words: list[str]) -> Fraction | None:
    total, group, last = 0, 0, 0
    for word in words:
        if word in ("a", "an"):
            word = "one"
        if word == "and":
            continue
        if word in _SCALES:
            total, group, last = total + (group or 1) * _SCALES[word], 0, 0
        elif word in ("hundred", "dozen"):
            group, last = (group or 1) * _COUNTS[word], 100
        elif word in _COUNTS:
            value = _COUNTS[word]
            # A smaller word may follow a larger one ("seventy two"); anything else begins another number.
            if group and not ((last == 100 and value < 100) or (20 <= last < 100 and 0 < value < 10)):
                return None
            group, last = group + value, value
        else:
            return None
    return Fraction(total + group) if words and any(word != "and" for word in words) else None
