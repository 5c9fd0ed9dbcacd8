"""The ``calculator`` tool: exact arithmetic on rational numbers.

Python's own parser reads the expression, and a walk over its tree computes it with fractions: nothing is evaluated, no name exists, and
sizes are bounded before anything is computed.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from fractions import Fraction

from engine.rollout.tools import BAD_ARGUMENT, ToolFailed

MAX_CHARACTERS = 200
MAX_BITS = 4096  # of a numerator or a denominator, also of one in between
MAX_DIGITS = 40  # of an answer that is written out
DECIMALS = 10

_CHARACTERS = re.compile(r"[0-9.eE+\-*/%() \t]+")
_NUMBER = re.compile(r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?")
_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SPELLINGS = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-", "^": "**", "[": "(", "]": ")"})

_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


async def calculator(argument: str) -> str:
    return calculate(argument)


def calculate(expression: str) -> str:
    """The value of ``expression``: a whole number, a decimal number where that is exact, else a fraction with its decimal value.

    Knows + - * / // % ** (also × ÷ ^), parentheses, decimals, powers of ten (2e3) and thousands commas. Raises ``ToolFailed``.
    """
    source = _GROUPED.sub("", expression.translate(_SPELLINGS)).strip().removesuffix("=").strip()
    if len(source) > MAX_CHARACTERS:
        raise ToolFailed(BAD_ARGUMENT, f"an expression has at most {MAX_CHARACTERS} characters")
    if not _CHARACTERS.fullmatch(source):
        raise ToolFailed(BAD_ARGUMENT, "only numbers, + - * / // % ** and parentheses")
    try:
        tree = ast.parse(source, mode="eval")
        return written(_value(tree.body, source))
    except (SyntaxError, RecursionError, MemoryError):
        raise ToolFailed(BAD_ARGUMENT, "this is no arithmetic expression") from None
    except ZeroDivisionError:
        raise ToolFailed(BAD_ARGUMENT, "division by zero") from None


def written(value: Fraction) -> str:
    if value.denominator == 1:
        return _digits(value.numerator)
    places = _decimal_places(value.denominator)
    if places is not None and places <= DECIMALS:
        whole = _digits(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        return f"{'-' if value < 0 else ''}{whole[:-places]}.{whole[-places:]}"
    return f"{_digits(value.numerator)}/{_digits(value.denominator)} (about {float(value):.{DECIMALS}g})"


def _value(node: ast.expr, source: str) -> Fraction:
    if isinstance(node, ast.Constant):
        return _number(source[node.col_offset : node.end_col_offset])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand, source)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, source), _value(node.right, source)
        if isinstance(node.op, ast.Pow):
            return _power(left, right)
        if compute := _OPERATORS.get(type(node.op)):
            return _bounded(Fraction(compute(left, right)))
    raise ToolFailed(BAD_ARGUMENT, "this is no arithmetic expression")


def _number(text: str) -> Fraction:
    if not _NUMBER.fullmatch(text):
        raise ToolFailed(BAD_ARGUMENT, f"{text} is no number")
    return _bounded(Fraction(text))


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ToolFailed(BAD_ARGUMENT, "only whole exponents")
    if abs(exponent) * max(base.numerator.bit_length(), base.denominator.bit_length()) > MAX_BITS + abs(exponent):
        raise ToolFailed(BAD_ARGUMENT, "the number is too large")
    return _bounded(base ** int(exponent))


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ToolFailed(BAD_ARGUMENT, "the number is too large")
    return value


def _digits(number: int) -> str:
    if abs(number) >= 10**MAX_DIGITS:
        raise ToolFailed(BAD_ARGUMENT, f"the result has more than {MAX_DIGITS} digits")
    return str(number)


def _decimal_places(denominator: int) -> int | None:
    """How many decimal places a fraction of this denominator ends after; None: it does not end."""
    twos = (denominator & -denominator).bit_length() - 1
    rest, fives = denominator >> twos, 0
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    return max(twos, fives) if rest == 1 else None
