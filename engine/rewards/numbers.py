"""Numbers as people and models write them, and which one a text settles on.

Read are signs, thousands separators, decimals, exponents, powers, fractions, mixed numbers, percent, LaTeX, scale words ("3 million") and,
where a text has no digits, spelled numbers. Exact rational arithmetic, so that 20-digit integers are not rounded together. Never raises,
whatever the text.

``settled`` is stricter than ``last_number``: a text that offers several candidates, or takes its number back ("not 42", "42 is wrong"),
settles on none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from engine.rewards import spelled

# Longer digit strings are noise from a model that repeats itself; exact arithmetic on them would only cost time.
MAX_DIGITS = 200
MAX_EXPONENT = 400
# The answer stands at the end; what lies further back is no part of it.
MAX_CHARACTERS = 50_000
# Most texts end in their answer: looked at first is the shortest end that holds a number, a margin of context before it.
_WINDOWS = (2_000, 10_000, MAX_CHARACTERS)
_MARGIN = 300
_LONGEST_LIST = 50

_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_GAPS = "\u00a0\u2009\u202f\u2007 '’_"
_GROUPED = (
    r"\d{1,3}(?:\.\d{3}){1,20},\d{1,200}(?!\d)"  # 1.234,5
    r"|\d{1,3}(?:\.\d{3}){2,20}(?![\d.])"  # 1.234.567
    r"|\d{1,2}(?:,\d{2}){1,20},\d{3}(?![\d,])(?:\.\d+)?"  # 12,34,567
    r"|\d{1,3}(?:,\d{3}){1,60}(?!\d)(?:\.\d+)?"  # 1,234.5
    rf"|\d{{1,3}}(?:[{_GAPS}]\d{{3}}){{1,60}}(?!\d)(?:\.\d+)?"  # 1 234.5
    r"|0,\d+(?![\d,])"  # 0,5
)
_PLAIN = r"\d+(?:\.\d+)?|\.\d+"
_NUMBER = re.compile(
    rf"(?P<sign>[-+−–]\s?|\b(?:minus|negative)\s)?(?:[$€£¥₹]\s?(?P<inner>[-−])?)?(?<![\d.^])(?P<value>{_GROUPED}|{_PLAIN})"
    r"(?:(?P<exponent>[eE][-+]?\d{1,4}(?![\w]))"
    r"|\s?[×*·⋅x]\s?10\s?(?:\^|\*\*)\s?[{(]?(?P<ten>[-+−]?\d{1,4})[})]?"
    r"|(?:\s?\^\s?|\*\*(?=\d))[{(]?(?P<power>-?\d{1,3})[})]?)?"
    rf"(?:\s(?P<numerator>\d{{1,9}})[/⁄](?P<denominator>\d{{1,9}})(?![\d/])|\s?[/⁄]\s?(?P<divisor>{_GROUPED}|{_PLAIN})(?![\d/]))?"
    rf"(?:[\s-](?P<scale>{'|'.join(_SCALES)})\b)?"
    r"(?P<percent>\s?(?:%|percent\b|per\scent\b))?",
    re.IGNORECASE,
)
# Digits behind letters belong to a name (CO2, m2, x1) unless the letters are a currency's.
_CURRENCY = re.compile(r"(?:\b[A-Z]{3}|\bRs)\Z")

_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{\s*([-+]?[\d.,]+)\s*\}\s*\{\s*([\d.,]+)\s*\}"), r" \1/\2 "),
    (re.compile(r"\\[dt]?frac\s*(?:(\d)|\{\s*(\d+)\s*\})\s*(?:(\d)|\{\s*(\d+)\s*\})"), r" \1\2/\3\4 "),
    (re.compile(r"(?<=\d)(?:\\[,!;: ]|\{,\})(?=\d{3})"), ","),
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "×"),
    (re.compile(r"\\([%$])"), r"\1"),
    (re.compile(r"\^\{?\\circ\}?"), "° "),
    (re.compile(r"\\(?:text|textbf|mathrm|mathbf|mbox)\s*\{"), " {"),
    (re.compile(r"\\(?:neq?)(?![a-zA-Z])"), "≠"),
    (re.compile(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[,!;: ]"), " "),
)
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_VULGAR = re.compile("(?<=\\d)\\s?[¼-¾⅐-⅞]|[¼-¾⅐-⅞]")

_DIGIT = re.compile("\\d|[¼-¾⅐-⅞]")
_BETWEEN = re.compile(r"[\s,;|$*_{}()\[\]]*(?:\b(?:or|and|maybe|perhaps|possibly|even|either)\b[\s,;|$*_{}()\[\]]*)*", re.IGNORECASE)
_CHOICE = re.compile(r"\b(?:or|and)\b", re.IGNORECASE)
_END = re.compile(r"[\s.!?,;:$*_`)}\]\"'>]*\Z")
_DENIED_BEFORE = re.compile(
    r"(?:\bnot|n['’]t|\bcannot|\bnever|\bneither|\bnor|\banything\sbut|\b(?:other|rather)\sthan|\binstead\sof|\bexcept|≠|!=|=/=)\s*"
    r"(?:(?:be|been|equal|equals|to|exactly|is|the|number|answer|value|a|an|really|actually|:|=)\s+){0,6}[\s$*_({\[\\]*\Z",
    re.IGNORECASE,
)
_DENIED_BEHIND = re.compile(
    r"[\s.,;:!?$*_)}\]]*(?:(?:is|was|are|would\sbe|can|could|must)\s*)?(?:n['’]t|not|never|wrong|incorrect|false|no\b)(?![a-z])",
    re.IGNORECASE,
)
_OPEN_BEFORE = re.compile(r"(?:[+*/^×·⋅({\[√]|\\[a-zA-Z]+|[\w)}\]]\s*[-−])\s*\Z")
_OPEN_BEHIND = re.compile(r"\s?[+*/^×·⋅(\\√πi!-]|[a-z]\b")
_DECORATION = re.compile(r"[\s$#*.!()\[\]{}]*")
_CLAIM = re.compile(r"\banswer\b[^.\n]{0,40}?(?:\bis\b|:|=)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """``value`` as written; ``percent``: a percent sign follows. ``start`` and ``end`` lie in the prepared text.

    ``in_expression``: an operator, bracket, letter or command touches it, so that it may be part of something larger; only ``settled``
    looks at that.
    """

    value: Fraction | None
    percent: bool = False
    start: int = 0
    end: int = 0
    in_expression: bool = False


def last_number(text: str) -> Fraction | None:
    """The value of the last number in ``text``, or None when there is none."""
    found = _last(_prepared(_box(text) or text))
    return found.value if found else None


def judge_number(answer: str, reference: str, *, absolute: float, relative: float) -> bool:
    """Whether the number that ``answer`` settles on is the last one in ``reference``, within the wider of both tolerances."""
    wanted = _candidates(_prepared(_box(reference) or reference))
    if len({number.value for number in wanted}) > 1:
        # A list is asked for ("(3, 4)"): all of it, in its order.
        found = _candidates(_prepared(_box(answer) or answer))
        return len(found) == len(wanted) and all(_near(a, b, absolute, relative) for a, b in zip(found, wanted, strict=True))
    one = settled(answer)
    return bool(wanted) and one is not None and _near(one, wanted[-1], absolute, relative)


def _near(found: Number, expected: Number, absolute: float, relative: float) -> bool:
    if found.value is None or expected.value is None:
        return False
    # "50%" is 50 to who asks for a percentage, and 0.5 to who asks for a share.
    values = [found.value]
    if found.percent != expected.percent:
        values.append(found.value / 100 if found.percent else found.value * 100)
    return any(close(value, expected.value, absolute=absolute, relative=relative) for value in values)


def close(value: Fraction, reference: Fraction, *, absolute: float, relative: float) -> bool:
    """Whether the two differ by at most the wider of both tolerances (relative to ``reference``)."""
    return abs(value - reference) <= max(Fraction(absolute), Fraction(relative) * abs(reference))


def settled(text: str) -> Number | None:
    """The number that ``text`` settles on: in its last box, or else its last one; None when there is none, or it is left open."""
    text = text[-MAX_CHARACTERS:]
    box = _box(text)
    if box is not None:
        return None if _boxes_differ(text) or _claims_another(text, box) else _settled(_prepared(box))
    return _settled(_prepared(text))


def leaves_open(text: str) -> bool:
    """Whether ``text`` holds numbers and yet settles on none: it lists candidates, or takes back what it says."""
    return last_number(text) is not None and settled(text) is None


def plain_verdict(answer: str, reference: str) -> bool | None:
    """Whether ``answer`` equals a ``reference`` that is one plain number; None where that takes algebra.

    Exact among integers, to one part in a million where either is none (0.333333 is 1/3, 3.1416 is not 3.14159).
    """
    expected = _plain_number(_prepared(_box(reference) or reference))
    if expected is None:
        return None
    found = settled(answer)
    if found is not None and found.value is not None:
        whole = found.value.denominator == expected.value.denominator == 1
        if _near(found, expected, 0.0, 0.0 if whole else 1e-6):
            return True
        return None if found.in_expression else False
    return False if leaves_open(answer) else None


def _plain_number(text: str) -> Number | None:
    numbers = list(_scan(text))
    if len(numbers) != 1 or numbers[0].value is None:
        return None
    rest = text[: numbers[0].start] + text[numbers[0].end :]
    return numbers[0] if _DECORATION.fullmatch(rest) else None


def _settled(text: str) -> Number | None:
    numbers = list(_scan(text))
    if not numbers:
        return _last(text)
    last = numbers[-1]
    claim = _spelled_claim(text, last)
    if claim is not None:
        return claim
    if _denied(text, last) or _listed(text, numbers):
        return None
    touched = _OPEN_BEFORE.search(text[max(0, last.start - 12) : last.start]) or _OPEN_BEHIND.match(text[last.end : last.end + 4])
    return replace(last, in_expression=bool(touched))


def _last(text: str) -> Number | None:
    numbers = list(_scan(text))
    if numbers:
        return numbers[-1]
    value = spelled.last_number(text)
    if value is None or denied_before(text[: value.start]):
        return None
    return Number(value=value.value, percent=bool(re.match(r"\s?(?:%|per\s?cent)", text[value.end :], re.IGNORECASE)))


def _spelled_claim(text: str, last: Number) -> Number | None:
    """ "3 times 24: the answer is seventy-two": a claim behind all digits that is spelled out."""
    claims = list(_CLAIM.finditer(text, last.end))
    if not claims:
        return None
    value = spelled.last_number(text[claims[-1].end() :])
    return Number(value=value.value) if value else None


def _denied(text: str, number: Number) -> bool:
    return denied_before(text[: number.start]) or bool(_DENIED_BEHIND.match(text[number.end : number.end + 60]))


def denied_before(text: str) -> bool:
    """Whether what follows ``text`` is denied by how it ends: "it is not …", "x ≠ …"."""
    return bool(_DENIED_BEFORE.search(text[-80:]))


def _listed(text: str, numbers: list[Number]) -> bool:
    """Whether the last number is one of several candidates side by side: "41, 42", "41 or 42 apples", but not "of 100, 42 are"."""
    chain = _chain(text, numbers)
    if len({number.value for number in chain}) < 2:
        return False
    choice = _CHOICE.search(text[chain[0].end : chain[-1].start])
    return bool(choice) or len(chain) > 2 or bool(_END.match(text[chain[-1].end :]))


def _chain(text: str, numbers: list[Number]) -> list[Number]:
    """The last number and those right before it that nothing but separators keeps apart."""
    chain = [numbers[-1]]
    for number in reversed(numbers[-_LONGEST_LIST:-1]):
        between = text[number.end : chain[-1].start]
        if len(between) > 60 or not _BETWEEN.fullmatch(between):
            break
        chain.append(number)
    return chain[::-1]


def _candidates(text: str) -> list[Number]:
    """The last number of ``text``, or the list that it ends."""
    numbers = list(_scan(text))
    if numbers:
        return _chain(text, numbers)
    last = _last(text)
    return [last] if last else []


def _box(text: str) -> str | None:
    """What stands in the last ``\\boxed{…}`` of ``text``; None without one, or when it is empty."""
    starts = [match.end() for match in _BOX.finditer(text)]
    return (_inside(text, starts[-1]).strip() or None) if starts else None


def _boxes_differ(text: str) -> bool:
    """Whether several boxes stand side by side that hold different things."""
    starts = list(_BOX.finditer(text))[-_LONGEST_LIST:]
    contents = [_inside(text, match.end()) for match in starts]
    for here, there, first, second in zip(starts, starts[1:], contents, contents[1:], strict=False):
        between = text[here.end() + len(first) + 1 : there.start()]
        if first.strip() != second.strip() and len(between) < 60 and _BETWEEN.fullmatch(between):
            return True
    return False


def _claims_another(text: str, box: str) -> bool:
    """Whether the text behind the last box says that the answer is another number."""
    behind = _prepared(text[text.rfind(box) + len(box) :])
    claims = list(_CLAIM.finditer(behind))
    if not claims:
        return False
    said, boxed = next(_scan(behind[claims[-1].end() :]), None), _last(_prepared(box))
    return said is not None and boxed is not None and said.value != boxed.value


def _inside(text: str, start: int) -> str:
    depth = 1
    for position in range(start, min(len(text), start + 2000)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
    return ""


def _prepared(text: str) -> str:
    """The end of ``text``, as far back as its last numbers, with LaTeX and vulgar fractions as plain text."""
    for characters in _WINDOWS:
        window = text[-characters:]
        if len(window) == len(text) or _DIGIT.search(window, _MARGIN):
            break
    text = window
    if "\\" in text or "{" in text:
        for pattern, instead in _LATEX:
            text = pattern.sub(instead, text)
    return text if text.isascii() else _VULGAR.sub(_vulgar, text)


def _vulgar(match: re.Match[str]) -> str:
    value = Fraction(unicodedata.numeric(match[0].strip())).limit_denominator(10)
    return f" {value.numerator}/{value.denominator}"


def _scan(text: str) -> Iterator[Number]:
    for match in _NUMBER.finditer(text):
        before = text[max(0, match.start() - 4) : match.start()] if not match["sign"] else ""
        if before and before[-1].isalpha() and match.start("value") == match.start() and not _CURRENCY.search(before):
            continue
        # A sign between two operands ("10 - 3") belongs to neither number.
        start = match.start("value") if match["sign"] and not _is_negative(match) else match.start()
        yield Number(value=_value(match), percent=bool(match["percent"]), start=start, end=match.end())


def _value(match: re.Match[str]) -> Fraction | None:
    value = _decimal(match)
    if value is None:
        return None
    if match["denominator"]:
        value = _mixed(value, int(match["numerator"]), int(match["denominator"]), negative=_is_negative(match))
        return value if value is None else value * _SCALES.get((match["scale"] or "").lower(), 1)
    if match["divisor"]:
        divisor = _plain(match["divisor"])
        if not divisor:
            return None
        # In a date or a path ("2024/05/06") the last part stands alone.
        value = divisor if match.string[: match.start()].endswith("/") else value / divisor
    value *= _SCALES.get((match["scale"] or "").lower(), 1)
    return -value if _is_negative(match) else value


def _decimal(match: re.Match[str]) -> Fraction | None:
    """The value without its sign, its exponent or power taken in."""
    value, exponent = _plain(match["value"]), match["exponent"] or match["ten"]
    if value is None:
        return None
    if exponent:
        shift = int(exponent.lstrip("eE").replace("−", "-"))
        return None if abs(shift) > MAX_EXPONENT else value * Fraction(10) ** shift
    if match["power"]:
        power = int(match["power"])
        too_large = abs(power) * max(len(str(value.numerator)), len(str(value.denominator))) > MAX_EXPONENT
        return None if too_large or (value == 0 and power < 0) else value**power
    return value


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
    if match["inner"]:
        return True
    if not sign or sign[0] == "+":
        return False
    if sign[0] in "nN":
        return True
    before = match.string[: match.start()]
    if sign[0] in "mM":
        return not re.search(r"\d\s*\Z", before[-20:])
    if sign[-1].isspace():
        before = before.rstrip()
    return not (before and (before[-1].isalnum() or before[-1] in "_)]}"))


def _plain(digits: str) -> Fraction | None:
    if len(digits) > MAX_DIGITS:
        return None
    if re.fullmatch(r"\d{1,3}(?:\.\d{3})+,\d+", digits) or re.fullmatch(r"\d{1,3}(?:\.\d{3}){2,}", digits):
        digits = digits.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"0,\d+", digits):
        digits = digits.replace(",", ".")
    return Fraction(re.sub(f"[,{_GAPS}]", "", digits))
