"""The process in which math-verify runs: reads framed JSON requests, writes framed JSON answers, one at a time, until its input ends.

A frame is four bytes of big-endian length and then UTF-8 JSON. Request ``{"answer", "reference"}``; answer ``{"equal": bool}`` or
``{"invalid": why}``; the first frame after start is ``{"ready": true}``. It sets itself no time limit: the parent kills it.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
from typing import BinaryIO

MAX_FRAME_BYTES = 4 * 2**20
_PR_SET_PDEATHSIG = 1
_PROSE = re.compile(r"#|(?<![\\a-zA-Z])[a-zA-Z]{3,}")


def main(parent_pid: int, memory_bytes: int) -> None:
    _die_with(parent_pid)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    replies = os.fdopen(os.dup(1), "wb")
    # What a library prints must not end up between the frames.
    os.dup2(2, 1)
    compare = _load()
    _write(replies, {"ready": True})
    while (request := _read(sys.stdin.buffer)) is not None:
        _write(replies, compare(request["answer"], request["reference"]))


def _die_with(parent_pid: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent_pid:
        # The parent died before the line above; nobody would read the answers.
        os._exit(1)


def _load():
    from math_verify import parse, verify

    def read(text: str) -> list:
        # A bare formula ("\\frac{1}{2}", "1+x") is only read whole inside dollars; prose must stay outside of them.
        bare = "$" not in text and "\\boxed" not in text and not _PROSE.search(text)
        return (parse(f"${text}$", parsing_timeout=None) if bare else []) or parse(text, parsing_timeout=None)

    def compare(answer: str, reference: str) -> dict:
        expected = read(reference)
        if not expected:
            return {"invalid": f"the reference {reference[:80]!r} is no mathematical expression"}
        value = read(answer)
        return {"equal": bool(value) and bool(verify(expected, value, timeout_seconds=None))}

    # The first comparison imports most of sympy: let the start pay for it, not the first grade.
    compare("$1/2$", "$0.5$")
    return compare


def _read(stream: BinaryIO) -> dict | None:
    head = stream.read(4)
    if len(head) < 4:
        return None
    return json.loads(stream.read(int.from_bytes(head, "big")))


def _write(stream: BinaryIO, message: dict) -> None:
    body = json.dumps(message).encode()
    stream.write(len(body).to_bytes(4, "big") + body)
    stream.flush()
