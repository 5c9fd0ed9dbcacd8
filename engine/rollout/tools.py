"""Tools that a model may call in the middle of an episode, and how it calls them.

    <tool>name: argument</tool>

That is all of the syntax: short enough for a model of any size to produce, and its end is one fixed string that sampling stops at. The
first call in a turn counts. A call that fails has a kind, and a message that the model reads; it never ends an episode, let alone a batch.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from textwrap import dedent

from engine.environment_spec import CALL_END, CALL_START

MAX_ARGUMENT_CHARACTERS = 2000

# What can be wrong with a call: written so that no tool could know what is meant; a name that is none of the job's tools; an argument
# that the tool cannot use; one call too many; no answer in time; no answer at all; an answer that makes no sense; a tool that broke;
# a program that wanted what programs may not; a program that failed otherwise.
BAD_CALL, UNKNOWN_TOOL, BAD_ARGUMENT, TOO_MANY_CALLS, TIMEOUT, UNAVAILABLE, BAD_ANSWER, BROKEN, DENIED, CODE_ERROR = KINDS = (
    *("bad_call", "unknown_tool", "bad_argument", "too_many_calls", "timeout", "unavailable", "bad_answer", "broken"),
    *("denied", "code_error"),
)

# Takes the argument, returns the answer. Raises ``ToolFailed``; may be cancelled.
Tool = Callable[[str], Awaitable[str]]

_NAME = re.compile(r"\s*([A-Za-z_]{1,32})\s*:")


class ToolFailed(Exception):
    """``kind``: one of ``KINDS``; ``message``: for the model."""

    def __init__(self, kind: str, message: str):
        super().__init__(message)
        self.kind, self.message = kind, message


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    tool: str
    argument: str


def find_call(text: str) -> Call | None:
    """The first call in what a model wrote, None when there is none. Raises ``ToolFailed`` for one that cannot be read."""
    _, started, rest = text.partition(CALL_START)
    if not started:
        return None
    body, ended, _ = rest.partition(CALL_END)
    if not ended:
        raise ToolFailed(BAD_CALL, f"a call ends with {CALL_END}")
    name = _NAME.match(body)
    if name is None:
        raise ToolFailed(BAD_CALL, f"write {CALL_START}name: argument{CALL_END}")
    argument = dedent(body[name.end() :]).strip()
    if not argument:
        raise ToolFailed(BAD_ARGUMENT, f"{name[1]} needs an argument")
    if len(argument) > MAX_ARGUMENT_CHARACTERS:
        raise ToolFailed(BAD_ARGUMENT, f"an argument has at most {MAX_ARGUMENT_CHARACTERS} characters")
    return Call(tool=name[1], argument=argument)
