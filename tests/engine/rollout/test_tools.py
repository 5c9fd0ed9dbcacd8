"""How a call is read out of what a model wrote."""

from __future__ import annotations

import pytest

from engine.rollout.tools import BAD_ARGUMENT, BAD_CALL, Call, ToolFailed, find_call


def test_a_call_is_a_name_and_an_argument():
    assert find_call("I add them: <tool>calculator: 1 + 2</tool>") == Call(tool="calculator", argument="1 + 2")
    assert find_call("<tool>\n search :where: there\n</tool>") == Call(tool="search", argument="where: there")


def test_the_first_call_counts():
    assert find_call("<tool>a: 1</tool> <tool>b: 2</tool>") == Call(tool="a", argument="1")


@pytest.mark.parametrize("text", ["", "42", "</tool>", "tool: search", "< tool>search: x</tool>"])
def test_text_without_a_call_is_an_answer(text):
    assert find_call(text) is None


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<tool>search: x", BAD_CALL),
        ("<tool>1 + 2</tool>", BAD_CALL),
        ("<tool></tool>", BAD_CALL),
        (f"<tool>{'a' * 33}: x</tool>", BAD_CALL),
        ("<tool>search:  </tool>", BAD_ARGUMENT),
        (f"<tool>search: {'x' * 2001}</tool>", BAD_ARGUMENT),
    ],
)
def test_a_call_that_cannot_be_read_has_a_kind(text, kind):
    with pytest.raises(ToolFailed) as failed:
        find_call(text)

    assert failed.value.kind == kind
