"""The process in which slow or breakable comparisons run: reads framed JSON requests, writes framed JSON answers, until its input ends.

A frame is four bytes of big-endian length and then UTF-8 JSON. The first frame after start is ``{"ready": true}``; an answer is
``{"value": number or bool}`` or ``{"invalid": why}``. It sets itself no time limit: the parent kills it. The role that it was started in
says what it compares: ``math`` (math-verify) or ``text`` (similarity metrics, JSON schemas).
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from engine.rewards.numbers import denied_before

MAX_FRAME_BYTES = 4 * 2**20
_PR_SET_PDEATHSIG = 1
_PROSE = re.compile(r"#|(?<![\\a-zA-Z])[a-zA-Z]{3,}")

# Longer texts without any words are a model that repeats itself; read as one formula they take the parser minutes.
_MAX_BARE_CHARACTERS = 120
# 10^610^610…: no answer to anything, and more digits than there is memory.
_TOWER = re.compile(r"\^[\s{(]*\d[\d.]*[\s})]*\^[\s{(]*\d")
_FORMULA = re.compile(r"\$[^$]{1,500}\$|\\\([^$]{1,500}?\\\)|\\boxed\{[^$]{0,500}\}")
_OR = re.compile(r"[\s,;]*(?:(?:or|maybe|perhaps|possibly|even|either)[\s,;]*)+|[\s,;]+", re.IGNORECASE)

Answer = Callable[[dict[str, Any]], dict[str, Any]]


def main(role: str, parent_pid: int, memory_bytes: int) -> None:
    _die_with(parent_pid)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.fdopen(os.dup(1), "wb")
    # What a library prints must not end up between the frames.
    os.dup2(2, 1)
    answer = {"math": _math, "text": _text}[role]()
    _write(replies, {"ready": True})
    while (request := _read(sys.stdin.buffer)) is not None:
        _write(replies, answer(request))


def _die_with(parent_pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        # The parent died before the line above; nobody would read the answers.
        os._exit(1)


def _math() -> Answer:
    """``{"answer", "reference"}`` → whether both are mathematically equal."""
    from math_verify import parse, verify

    def read(text: str) -> list:
        # A bare formula ("\\frac{1}{2}", "1+x") is only read whole inside dollars; prose must stay outside of them.
        bare = len(text) <= _MAX_BARE_CHARACTERS and "$" not in text and "\\boxed" not in text and not _PROSE.search(text)
        return (parse(f"${text}$", parsing_timeout=None) if bare else []) or parse(text, parsing_timeout=None)

    def compare(request: dict[str, Any]) -> dict[str, Any]:
        expected = read(request["reference"])
        if not expected:
            return {"invalid": f"the reference {request['reference'][:80]!r} is no mathematical expression"}
        answer = request["answer"]
        if _takes_back(answer) or (_TOWER.search(answer) and not _TOWER.search(request["reference"])):
            return {"value": False}
        value = read(answer)
        return {"value": bool(value) and bool(verify(expected, value, timeout_seconds=None))}

    # The first comparison imports most of sympy: let the start pay for it, not the first grade.
    compare({"answer": "$1/2$", "reference": "$0.5$"})
    return compare


def _takes_back(text: str) -> bool:
    """Whether the last formula of ``text`` is denied ("it is not $x$"), or is one of several that are offered ("$x$ or $y$")."""
    formulas = list(_FORMULA.finditer(text))
    if not formulas:
        return False
    last = formulas[-1]
    earlier = formulas[-2] if len(formulas) > 1 else None
    offered = earlier is not None and earlier[0] != last[0] and _OR.fullmatch(text[earlier.end() : last.start()])
    return bool(offered) or denied_before(text[: last.start()])


def _text() -> Answer:
    """``{"metric", "answer", "reference"}`` → 0..1; ``{"schema", "answer"}``, both JSON texts → whether the schema accepts."""
    import referencing
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    from engine.rewards.similarity import similarity

    # A schema that refers to itself takes many frames for each level of a document.
    sys.setrecursionlimit(20_000)

    @functools.lru_cache(maxsize=64)
    def validator(schema: str) -> Any:
        parsed = json.loads(schema)
        # An empty registry: nothing outside of the schema is ever fetched, whatever it refers to.
        return validator_for(parsed, default=Draft202012Validator)(parsed, registry=referencing.Registry())

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if "metric" in request:
            return {"value": similarity(request["metric"], request["answer"], request["reference"])}
        try:
            return {"value": validator(request["schema"]).is_valid(json.loads(request["answer"]))}
        except (RecursionError, referencing.exceptions.Unresolvable) as error:
            return {"invalid": f"the schema cannot be followed: {str(error)[:200] or 'too deep'}"}

    return answer


def _read(stream: BinaryIO) -> dict | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return json.loads(stream.read(int.from_bytes(head, "big")))


def _write(stream: BinaryIO, message: dict) -> None:
    body = json.dumps(message).encode()
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()
