"""What is believed of a worker's words, and what is not."""

from __future__ import annotations

import math

import pytest

from engine.rewards.sandbox import Failed, Graded, NotApplicable, replies
from engine.rewards.sandbox.frames import Forged, decode

FRAME = [[3, "grade"]]
ERROR = {"kind": "exception", "message": "ValueError: no", "line": 3, "trace": FRAME}


def test_honest_replies_are_read():
    assert replies.verdict({"ask": "n", "reward": 1}, ask="n") == Graded(reward=1.0)
    assert replies.verdict({"ask": "n", "reward": None}, ask="n") == NotApplicable()
    assert replies.verdict({"ask": "n", "reward": 1.5, "components": {"a": 1}}, ask="n").components == {"a": 1.0}
    failed = replies.verdict({"ask": "n", "error": ERROR}, ask="n")
    assert failed == Failed(kind="exception", message="ValueError: no", line=3, trace=((3, "grade"),))


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"ask": "other", "reward": 1},
        {"ask": "n"},
        {"ask": "n", "reward": "1"},
        {"ask": "n", "reward": True},
        {"ask": "n", "reward": [1]},
        {"ask": "n", "reward": 1e10},
        {"ask": "n", "reward": 10**400},
        {"ask": "n", "reward": math.inf},
        {"ask": "n", "reward": 1, "components": [1]},
        {"ask": "n", "reward": 1, "components": {"a": "1"}},
        {"ask": "n", "reward": 1, "components": {str(n): 1 for n in range(40)}},
        {"ask": "n", "error": None},
        {"ask": "n", "error": {**ERROR, "kind": "hard_timeout"}},
        {"ask": "n", "error": {**ERROR, "kind": "unavailable"}},
        {"ask": "n", "error": {**ERROR, "kind": []}},
        {"ask": "n", "error": {**ERROR, "line": "3"}},
        {"ask": "n", "error": {**ERROR, "line": 0}},
        {"ask": "n", "error": {**ERROR, "message": 1}},
        {"ask": "n", "error": {**ERROR, "trace": FRAME * 9}},
        {"ask": "n", "error": {**ERROR, "trace": [[1]]}},
    ],
)
def test_everything_else_is_forged(reply):
    with pytest.raises(Forged):
        replies.verdict(reply, ask="n")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"1", b'{"a": NaN}', b'{"a": Infinity}', b"\xff", b"[" * 10**5, b'{"a": ' + b"9" * 5000 + b"}", b"{} {}"]
)
def test_a_frame_that_is_no_plain_object_is_forged(body):
    with pytest.raises(Forged):
        decode(body)


def test_texts_are_made_short_and_printable():
    shown = replies.text("a\0\x1b[31m\ud800\u202e\n" + "x" * 10_000)
    assert shown.startswith("a\ufffd\ufffd[31m\ufffd\ufffd\n") and len(shown) == 600
