"""What the doctor can find, by name."""

from __future__ import annotations

from typing import Literal

Code = Literal[
    "all_right",
    "all_wrong",
    "entropy_collapse",
    "length_explosion",
    "truncation",
    "kl_drift",
    "mismatch",
    "clip_saturation",
    "gradient_spikes",
    "plateau",
    "overfitting",
    "one_part_decides",
]
