"""How long prompts are in a base model's tokens: histogram, quantiles, and the rows that cannot fit.

Counts the tokens of the messages' texts; the chat template adds a few per message, which only the engine's own renderer knows. A sample
of evenly spaced rows makes the histogram of a large file; whether a row fits is looked at for every row that could be too long.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from portal.datasets.findings import Findings
from portal.datasets.rows import Row, excerpt

KEPT = 200_000
BATCH_ROWS = 256
BINS = 24
_NICE = (1, 2, 5)

Count = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ruler:
    """``count`` gives the tokens of each text; no token is shorter than a byte. ``limit``: the model's context, None if unknown."""

    model: str
    count: Count
    limit: int | None


class Lengths:
    """``add`` each row, then read ``figures``. Findings about rows that are too long go to ``warnings``."""

    def __init__(self, ruler: Ruler, warnings: Findings, *, kept: int = KEPT):
        self._ruler, self._warnings, self._kept = ruler, warnings, kept
        self._tokens = array("I")
        self._stride, self._seen = 1, 0
        self._waiting: list[tuple[int, bool, list[str]]] = []
        self.longest, self.longest_line, self.over = 0, 0, 0

    def add(self, line: int, row: Row) -> None:
        sampled = self._seen % self._stride == 0
        self._seen += 1
        texts = [message["content"] for message in row.messages]
        if not sampled and (self._ruler.limit is None or sum(map(len, texts)) * 4 <= self._ruler.limit):
            return
        self._waiting.append((line, sampled, texts))
        if len(self._waiting) >= BATCH_ROWS:
            self._flush()

    def figures(self) -> dict[str, Any]:
        """{"model", "unit", "rows", "measured", "limit", "over", "min", "mean", "p50", "p95", "p99", "max", "max_line", "histogram"}."""
        self._flush()
        ordered = sorted(self._tokens)
        figures = {"model": self._ruler.model, "unit": "tokens", "rows": self._seen, "measured": len(ordered), "limit": self._ruler.limit}
        figures |= {"over": self.over, "max": self.longest, "max_line": self.longest_line or None}
        if not ordered:
            return {**figures, "min": 0, "mean": 0.0, "p50": 0, "p95": 0, "p99": 0, "histogram": []}
        at = {name: ordered[min(len(ordered) - 1, int(share * len(ordered)))] for name, share in _QUANTILES}
        mean = round(sum(ordered) / len(ordered), 1)
        return {**figures, "min": ordered[0], "mean": mean, **at, "histogram": histogram(ordered, self.longest)}

    def _flush(self) -> None:
        counts = iter(self._ruler.count([text for _, _, texts in self._waiting for text in texts]))
        for line, sampled, texts in self._waiting:
            self._take(line, sampled, sum(next(counts) for _ in texts), texts[-1])
        self._waiting = []
        while len(self._tokens) > self._kept:
            self._tokens = self._tokens[::2]
            self._stride *= 2

    def _take(self, line: int, sampled: bool, tokens: int, text: str) -> None:
        if sampled:
            self._tokens.append(tokens)
        if tokens > self.longest:
            self.longest, self.longest_line = tokens, line
        limit = self._ruler.limit
        if limit is not None and tokens > limit:
            self.over += 1
            message = f"the prompt has {tokens:,} tokens, more than the {limit:,} that {self._ruler.model} can read"
            self._warnings.add("over_long", line, None, message, "shorten it, or choose a model with a longer context", excerpt(text))


_QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def histogram(ordered: Sequence[int], longest: int) -> list[dict[str, int]]:
    """At most ``BINS`` + 1 bins of one round width from 0 to ``longest``: {"from", "to" (exclusive), "rows"}."""
    width = next(base * 10**power for power in range(12) for base in _NICE if base * 10**power * BINS >= max(1, longest))
    bins = [0] * (longest // width + 1)
    for tokens in ordered:
        bins[tokens // width] += 1
    return [{"from": index * width, "to": (index + 1) * width, "rows": rows} for index, rows in enumerate(bins)]
