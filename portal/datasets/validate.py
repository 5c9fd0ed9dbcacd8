"""Check a whole JSON Lines file, line by line, in flat memory: what is wrong, in which line and column, and how to mend it.

Checked with msgspec, which names the right line where table libraries name a wrong one or none. Eight bytes a row are kept: a digest of its
prompt, which finds duplicates and later keeps equal prompts on one side of the train/eval split.
"""

from __future__ import annotations

import itertools
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, BinaryIO

from portal.datasets import rows as row_rules
from portal.datasets.rows import BadLine, Row

MAX_LISTED = 100
MAX_LINE_BYTES = 1024 * 1024
MAX_ROWS = 10_000_000
MAX_COLUMNS = 200
_UTF8_BOM = b"\xef\xbb\xbf"
_FOREIGN_BOMS = ((b"\xff\xfe\x00\x00", "UTF-32"), (b"\x00\x00\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_MAGIC = ((b"PK\x03\x04", "a zip archive"), (b"\x1f\x8b", "gzip-compressed"), (b"PAR1", "a Parquet file"), (b"%PDF", "a PDF"))


class Findings:
    """Counts all, keeps the first hundred."""

    def __init__(self) -> None:
        self.listed: list[dict[str, Any]] = []
        self.total = 0

    def add(self, line: int | None, column: str | None, message: str, fix: str) -> None:
        self.total += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append({"line": line, "column": column, "message": message, "fix": fix})


@dataclass(kw_only=True)
class Checked:
    """The outcome for one file. ``digests``: one 64-bit digest of the prompt per row; ``columns``: those that every row has."""

    rows: int = 0
    digests: array[int] = field(default_factory=lambda: array("Q"))
    errors: Findings = field(default_factory=Findings)
    warnings: Findings = field(default_factory=Findings)
    seen: Counter[str] = field(default_factory=Counter)

    @property
    def columns(self) -> list[str]:
        return [name for name, count in self.seen.items() if count == self.rows]

    @property
    def report(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "columns": self.columns,
            "errors": self.errors.listed,
            "error_total": self.errors.total,
            "warnings": self.warnings.listed,
            "warning_total": self.warnings.total,
        }


def validate(file: BinaryIO, *, max_bytes: int) -> Checked:
    """Read ``file`` (binary, seekable) from its start to its end and leave nothing out."""
    checked = Checked()
    if problem := _not_text(file):
        checked.errors.add(*problem)
        return checked
    _check_lines(file, checked, max_bytes)
    if not checked.rows and not checked.errors.total:
        checked.errors.add(None, None, "the file has no rows", "write one JSON object a line, each with a prompt or messages")
    if not checked.errors.total:
        _warn_of_ragged(checked)
        _warn_of_duplicates(file, checked)
    return checked


def lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without its end) of every line that is not blank; a line over the cap is cut to just over it."""
    file.seek(0)
    number = 0
    while raw := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            _skip_line(file)
        if number == 1:
            raw = raw.removeprefix(_UTF8_BOM)
        if line := raw.strip(b" \t\r\n"):
            yield number, line


def _skip_line(file: BinaryIO) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def _not_text(file: BinaryIO) -> tuple[int | None, str | None, str, str] | None:
    file.seek(0)
    head = file.read(4)
    for bom, name in _FOREIGN_BOMS:
        if head.startswith(bom):
            return 1, None, f"the file is encoded in {name}", "save it as UTF-8"
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return None, None, f"the file is {name}, not JSON Lines", "upload plain JSON Lines: one JSON object a line, in UTF-8"
    return None


def _check_lines(file: BinaryIO, checked: Checked, max_bytes: int) -> None:
    size = 0
    for number, line in lines(file):
        size += len(line)
        if size > max_bytes:
            checked.errors.add(number, None, f"the file is larger than {max_bytes:,} bytes", "split it into several datasets")
            return
        if checked.rows >= MAX_ROWS:
            checked.errors.add(number, None, f"the file has more than {MAX_ROWS:,} rows", "split it into several datasets")
            return
        _check_line(number, line, checked)
        if len(checked.seen) > MAX_COLUMNS:
            checked.errors.add(number, None, f"the file has more than {MAX_COLUMNS} different columns", "keep those that rewards read")
            return


def _check_line(number: int, line: bytes, checked: Checked) -> None:
    checked.rows += 1
    try:
        if len(line) > MAX_LINE_BYTES:
            raise BadLine(
                None, f"the line is longer than {MAX_LINE_BYTES:,} bytes", "shorten the row or remove columns that no reward reads"
            )
        row = row_rules.parse(line)
    except BadLine as bad:
        checked.errors.add(number, bad.column, bad.message, bad.fix)
        checked.digests.append(0)
        return
    checked.seen.update(row.item.keys())
    checked.digests.append(prompt_digest(row))


def prompt_digest(row: Row) -> int:
    """64 bits that are equal for equal prompts."""
    digest = blake2b(digest_size=8)
    for message in row.messages:
        digest.update(f"{message['role']}\x1f{message['content']}\x1e".encode())
    return int.from_bytes(digest.digest(), "little")


def _warn_of_ragged(checked: Checked) -> None:
    for name, count in checked.seen.items():
        if count < checked.rows and name not in row_rules.PROMPT_COLUMNS:
            missing = checked.rows - count
            message = f"{missing:,} of {checked.rows:,} rows have no {name}"
            checked.warnings.add(None, name, message, "give every row this column, or rewards cannot use it")


def _warn_of_duplicates(file: BinaryIO, checked: Checked) -> None:
    """Names each repeated prompt's line and its first appearance; the file is read again only if there are any."""
    repeated = _repeated(checked.digests)
    if not repeated:
        return
    first_seen: dict[int, int] = {}
    for digest, (number, _) in zip(checked.digests, lines(file), strict=True):
        if digest not in repeated:
            continue
        if (first := first_seen.setdefault(digest, number)) != number:
            checked.warnings.add(number, None, f"the same prompt as in line {first}", "remove it, unless it should count twice")


def _repeated(digests: array[int]) -> set[int]:
    ordered = sorted(digests)
    return {a for a, b in itertools.pairwise(ordered) if a == b}
