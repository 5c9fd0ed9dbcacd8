"""Completions that are too long: a penalty that grows before the limit is reached."""

from __future__ import annotations


def soft_overlong_penalty(length: int, *, limit: int, buffer: int) -> float:
    """What a completion of ``length`` tokens loses, between 0 and −1: 0 up to limit − buffer, −1 at the limit, in between on a line.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13). A ``buffer`` of 0 is no penalty.
    """
    if buffer == 0:
        return 0.0
    return -min(1.0, max(0, length - (limit - buffer)) / buffer)
