"""The last number in a text: signs, thousands separators, decimals, exponents, fractions, LaTeX's ``\\frac``.

Exact rational arithmetic, so that 20-digit integers are not rounded together. Never raises, whatever the text.
"""

from __future__ import annotations

import re
from fractions import Fraction

# Longer digit strings are noise from a model that repeats itself; exact arithmetic on them would only cost time.
MAX_DIGITS = 200
MAX_EXPONENT = 400

_LATEX_FRACTION = re.compile(r"\\[dt]?frac\s*\{\s*([-+]?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}")
_LATEX_SPACE = re.compile(r"(?<=\d)(?:\\[,!;]|\{,\})(?=\d{3})")
_PLAIN = r"(?:\d{1,3}(?:,\d{3})+(?![\d])|\d+)(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?P<sign>[-+−–]\s?)?[$€£]?(?<![\d.])(?P<value>{_PLAIN})"
    rf"(?P<exponent>[eE][-+]?\d{{1,4}}(?![\w]))?"
    rf"(?:\s(?P<numerator>\d{{1,9}})/(?P<denominator>\d{{1,9}})(?![\d/])|\s?/\s?(?P<divisor>{_PLAIN})(?![\d/]))?"
)


def last_number(text: str) -> Fraction | None:
    """The value of the last number in ``text``, or None when there is none."""
    text = _LATEX_SPACE.sub(",", _LATEX_FRACTION.sub(r" \1/\2 ", text))
    found = None
    for match in _NUMBER.finditer(text):
        found = match
    return _value(found) if found else None


def close(value: Fraction, reference: Fraction, *, absolute: float, relative: float) -> bool:
    """Whether the two differ by at most the wider of both tolerances (relative to ``reference``)."""
    return abs(value - reference) <= max(Fraction(absolute), Fraction(relative) * abs(reference))


def _value(match: re.Match[str]) -> Fraction | None:
    value = _plain(match["value"], match["exponent"])
    if value is None:
        return None
    if match["denominator"]:
        return _mixed(value, int(match["numerator"]), int(match["denominator"]), negative=_is_negative(match))
    if match["divisor"]:
        divisor = _plain(match["divisor"], None)
        if not divisor:
            return None
        # In a date or a path ("2024/05/06") the last part stands alone.
        value = divisor if match.string[: match.start()].endswith("/") else value / divisor
    return -value if _is_negative(match) else value


def _mixed(whole: Fraction, numerator: int, denominator: int, *, negative: bool) -> Fraction | None:
    """ "1 1/2" is 1.5, but "7 9/3" is a list whose last entry is 3."""
    if denominator == 0:
        return None
    part = Fraction(numerator, denominator)
    if part >= 1 or whole.denominator != 1:
        return part
    return -(whole + part) if negative else whole + part


def _is_negative(match: re.Match[str]) -> bool:
    """A minus is a sign unless it stands between two operands: "10-3" and "10 - 3" end in 3, "x = -3" and "5 -3" in -3."""
    sign = match["sign"]
    if not sign or sign[0] == "+":
        return False
    before = match.string[: match.start()]
    if sign[-1].isspace():
        before = before.rstrip()
    return not (before and (before[-1].isalnum() or before[-1] in "_)]}"))


def _plain(digits: str, exponent: str | None) -> Fraction | None:
    if len(digits) > MAX_DIGITS or (exponent and abs(int(exponent[1:])) > MAX_EXPONENT):
        return None
    return Fraction(digits.replace(",", "") + (exponent or ""))


def judge_number(answer: str, reference: str, *, absolute: float, relative: float) -> bool:
    """Whether the number that ``answer`` settles on is the one in ``reference``, which must hold one."""
    value, expected = last_number(answer), last_number(reference)
    return value is not None and close(value, expected, absolute=absolute, relative=relative)
