"""What a check has found: everything is counted, the first hundred are kept."""

from __future__ import annotations

from collections import Counter
from typing import Any

from portal.datasets.rows import BadLine

MAX_LISTED = 100
NO_LINE = 1 << 62


class Findings:
    """``listed``: the first hundred; ``total``: how many there were; ``causes``: how many of each kind."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.total = 0
        self.causes: Counter[str] = Counter()

    def add(self, cause: str, line: int | None, column: str | None, message: str, fix: str, text: str = "", *, times: int = 1) -> None:
        self.total += times
        self.causes[cause] += times
        if len(self.listed) < MAX_LISTED:
            column = column if column is None else _storable(column)
            self.listed.append({"line": line, "column": column, "text": text, "cause": cause, "message": _storable(message), "fix": fix})

    def add_bad(self, line: int | None, bad: BadLine) -> None:
        self.add(bad.cause, line, bad.column, bad.message, bad.fix, bad.text)

    def take(self, other: Findings, **marks: Any) -> None:
        """Append what ``other`` has found, each marked with ``marks``, as far as there is room."""
        self.total += other.total
        self.causes.update(other.causes)
        self.listed += [{**fault, **marks} for fault in other.listed[: MAX_LISTED - len(self.listed)]]


def _storable(text: str) -> str:
    """A column's name may hold the NUL that is complained of, which PostgreSQL stores in no text."""
    return text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
