from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rewards.numbers import close, last_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#### 72", "72"),
        ("the answer is 1,234.50.", "1234.5"),
        ("1,234,567", "1234567"),
        ("12,34", "34"),
        ("x = -3", "-3"),
        ("so −7", "-7"),
        ("+5", "5"),
        ("10-3", "3"),
        ("5 - 3", "3"),
        ("5 -3", "-3"),
        ("x = - 3", "-3"),
        ("(-3)", "-3"),
        ("-$5", "-5"),
        ("$1,000", "1000"),
        (".5", "0.5"),
        ("1.5E-3", "0.0015"),
        ("1e5", "100000"),
        ("3/4", "3/4"),
        ("1 1/2", "3/2"),
        ("-1 1/2", "-3/2"),
        ("7 9/3", "3"),
        ("2024/05/06", "6"),
        (r"\boxed{\frac{3}{4}}", "3/4"),
        (r"-\frac{1}{2}", "-1/2"),
        (r"1{,}234", "1234"),
        ("50%", "50"),
    ],
)
def test_it_reads_the_last_number_as_people_write_it(text, value):
    assert last_number(text) == Fraction(value)


@pytest.mark.parametrize("text", ["", "none", "²", "1/0", "9" * 5000, "1e999"])
def test_what_is_no_number_is_none(text):
    assert last_number(text) is None


def test_long_integers_are_not_rounded_together():
    near = last_number("12345678901234567891")

    assert not close(near, Fraction("12345678901234567890"), absolute=1e-6, relative=0.0)


@given(st.text() | st.text(alphabet="0123456789.,/-+ eE\\frac{}$"))
def test_it_never_raises(text):
    last_number(text)


@given(st.integers(-(10**15), 10**15))
def test_it_reads_any_integer_with_or_without_separators(value):
    assert last_number(f"The answer is {value:,}.") == last_number(f"{value}") == value
