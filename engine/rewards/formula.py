"""Arithmetic over named numbers, as tenants write it: ``0.8 * right + 0.2 * min(style, 1)``. No Python is ever run.

Numbers, names, ``+ - * / ^``, parentheses, and min, max, abs, floor, ceil, sqrt, exp, log (natural). Everything is a float, so that no
expression can grow without bound. ``Formula.parse`` refuses all else at the door.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

MAX_CHARACTERS = 500
MAX_DEPTH = 40

Values = Mapping[str, float]
_Node = Callable[[Values], float]

_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: math.pow,
}
_SIGNS: dict[type[ast.unaryop], Callable[[float], float]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
# name → (function, fewest arguments, most arguments)
FUNCTIONS: dict[str, tuple[Callable[..., float], int, int]] = {
    "min": (min, 2, 16),
    "max": (max, 2, 16),
    "abs": (abs, 1, 1),
    "floor": (lambda x: float(math.floor(x)), 1, 1),
    "ceil": (lambda x: float(math.ceil(x)), 1, 1),
    "sqrt": (math.sqrt, 1, 1),
    "exp": (math.exp, 1, 1),
    "log": (math.log, 1, 1),
}


class FormulaError(ValueError):
    """A formula that cannot be read, or that has no finite value for these numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Formula:
    """``names``: the values it needs."""

    text: str
    names: frozenset[str]
    _value: _Node

    @classmethod
    def parse(cls, text: str) -> Formula:
        """Raises ``FormulaError`` in words for the person who wrote it."""
        if len(text) > MAX_CHARACTERS:
            raise FormulaError(f"is longer than {MAX_CHARACTERS} characters")
        if "**" in text:
            raise FormulaError("writes a power with ** ; write it with ^")
        try:
            tree = ast.parse(text.strip().replace("^", "**"), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise FormulaError("is no arithmetic expression; write it like 0.8 * right + 0.2 * style") from None
        names: set[str] = set()
        return cls(text=text, _value=_compiled(tree.body, names, MAX_DEPTH), names=frozenset(names))

    def value(self, values: Values) -> float:
        """Finite. Raises ``FormulaError`` where the arithmetic has no value: division by zero, a root of a negative number …"""
        try:
            found = self._value(values)
        except (ArithmeticError, ValueError) as error:
            raise FormulaError(f"has no value here: {error}") from None
        if not math.isfinite(found):
            raise FormulaError(f"has no finite value here: {found}")
        return found


def _compiled(node: ast.expr, names: set[str], depth: int) -> _Node:
    if depth == 0:
        raise FormulaError("is nested too deeply")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _constant(number)
        case ast.Name(id=name):
            names.add(name)
            return lambda values: float(values[name])
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _SIGNS:
            sign, inner = _SIGNS[type(op)], _compiled(operand, names, depth - 1)
            return lambda values: sign(inner(values))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            combine, a, b = _OPERATORS[type(op)], _compiled(left, names, depth - 1), _compiled(right, names, depth - 1)
            return lambda values: combine(a(values), b(values))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in FUNCTIONS:
            return _call(function, [_compiled(argument, names, depth - 1) for argument in arguments])
    raise FormulaError(f"cannot use {_shown(node)}; there are numbers, names, + - * / ^ and {', '.join(FUNCTIONS)}")


def _shown(node: ast.expr) -> str:
    try:
        return repr(ast.unparse(node)[:40])
    except RecursionError:
        return "something nested so deeply"


def _constant(number: int | float) -> _Node:
    try:
        value = float(number)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise FormulaError("holds a number that is too large")
    return lambda values: value


def _call(name: str, arguments: list[_Node]) -> _Node:
    function, fewest, most = FUNCTIONS[name]
    if not fewest <= len(arguments) <= most:
        raise FormulaError(f"gives {name} {len(arguments)} values; it takes {fewest if fewest == most else f'{fewest} or more'}")
    return lambda values: function(*(argument(values) for argument in arguments))
