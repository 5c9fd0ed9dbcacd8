"""By how much trainer and sampler differ on each sampled token of a step: log π_trainer − log π_sampler, two bytes a token.

A file of half-precision floats, in the order of the step's trajectories and of their sampled tokens. It is kept for looking only: steps of
before there was such a file, and steps that were never trained on, have none.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

LARGEST = 65504.0  # of a half-precision float


def encode(differences: Sequence[float]) -> bytes:
    """In nats; what is no number stays none."""
    bounded = (value if math.isnan(value) else max(-LARGEST, min(LARGEST, value)) for value in differences)
    return struct.pack(f"<{len(differences)}e", *bounded)


def decode(data: bytes, counts: Sequence[int]) -> list[list[float | None]] | None:
    """One list for each of the trajectories, which have ``counts`` sampled tokens; None for what was no number. None where ``data`` is
    of other trajectories.
    """
    total = sum(counts)
    if len(data) != 2 * total:
        return None
    values = iter(struct.unpack(f"<{total}e", data))
    return [[_known(next(values)) for _ in range(count)] for count in counts]


def _known(value: float) -> float | None:
    """Four digits are more than the file has."""
    return float(f"{value:.4g}") if math.isfinite(value) else None
