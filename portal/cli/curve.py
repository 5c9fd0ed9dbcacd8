"""A curve in a terminal, in braille: two by four dots to a character. Pure."""

from __future__ import annotations

from collections.abc import Sequence

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def curve(values: Sequence[float], *, width: int, height: int, low: float = 0.0, high: float = 1.0) -> list[str]:
    """``height`` lines of ``width`` characters, oldest value left; the range grows to what the values need."""
    if not values:
        return [" " * width] * height
    low, high = min(low, *values), max(high, *values)
    across, down = 2 * width, 4 * height
    cells = [[0] * width for _ in range(height)]
    before: int | None = None
    for x in range(across):
        y = _row(_at(values, x / max(1, across - 1)), low, high, down)
        for dot in range(min(y, before if before is not None else y), max(y, before if before is not None else y) + 1):
            cells[dot // 4][x // 2] |= _DOTS[dot % 4][x % 2]
        before = y
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in line) for line in cells]


def _at(values: Sequence[float], share: float) -> float:
    """Between the two nearest values."""
    place = share * (len(values) - 1)
    left = int(place)
    right = min(left + 1, len(values) - 1)
    return values[left] + (values[right] - values[left]) * (place - left)


def _row(value: float, low: float, high: float, down: int) -> int:
    return round((1 - (value - low) / (high - low or 1)) * (down - 1))
