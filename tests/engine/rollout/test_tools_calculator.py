from __future__ import annotations

import pytest

from engine.rollout.tools import BAD_ARGUMENT, ToolFailed
from engine.rollout.tools_calculator import calculate


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("2+3*4", "14"),
        ("(2+3)*4", "20"),
        ("7/2", "3.5"),
        ("-1/8", "-0.125"),
        ("1/3", "1/3 (about 0.3333333333)"),
        ("-2/3", "-2/3 (about -0.6666666667)"),
        ("7//2", "3"),
        ("17 % 5", "2"),
        ("2^10", "1024"),
        ("2**-2", "0.25"),
        ("-2**2", "-4"),
        ("1,234,567 + 1", "1234568"),
        ("12 × 3 ÷ 4 =", "9"),
        ("1.5e3", "1500"),
        ("0.05", "0.05"),
        ("0**0", "1"),
    ],
)
def test_it_computes_what_people_write(expression, answer):
    assert calculate(expression) == answer


def test_decimals_are_exact():
    assert calculate("0.1 + 0.2") == "0.3"
    assert calculate("(1/49)*49") == "1"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1/0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0**-1", "division by zero"),
        ("9**9**9", "too large"),
        ("(2**4000)**2", "too large"),
        ("2**4000*2**4000", "too large"),
        ("1e999", "more than 40 digits"),
        ("2**0.5", "only whole exponents"),
        ("1e9999", "is no number"),
        ("(1+2", "no arithmetic expression"),
        ("3 4", "no arithmetic expression"),
        ("(1)(2)", "no arithmetic expression"),
        ("1 if 1 else 2", "only numbers"),
        ("__import__('os')", "only numbers"),
        ("(" * 90 + "1" + ")" * 90 + "+", "no arithmetic expression"),
        ("1" * 201, "at most 200 characters"),
        ("", "only numbers"),
    ],
)
def test_what_it_cannot_compute_is_a_bad_argument_with_its_reason(expression, message):
    with pytest.raises(ToolFailed, match=message) as failed:
        calculate(expression)

    assert failed.value.kind == BAD_ARGUMENT


def test_nesting_to_the_limit_is_harmless():
    assert calculate("-" * 199 + "1") == "-1"
