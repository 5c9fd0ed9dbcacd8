"""An uploaded file as records, whatever its format: (line or row number, the columns, or what is wrong with it).

A source can be read from its start any number of times, and never holds more than one record.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, BinaryIO, Protocol

from portal.datasets.findings import Findings
from portal.datasets.parquet import ParquetSource
from portal.datasets.rows import BadLine, decode, ending, excerpt
from portal.datasets.text import (
    ENCODINGS,
    MAX_LINE_BYTES,
    Lines,
    Recoded,
    first_not_utf8,
    foreign_encoding,
    lines,
    looks_like_windows,
)

Record = tuple[int, "dict[str, Any] | BadLine"]
FORMATS = {"jsonl": "JSON Lines", "csv": "CSV", "parquet": "Parquet"}
DELIMITERS = ",;\t|"
_MAGIC = (
    *((b"PK\x03\x04", "a zip archive or an Excel workbook"), (b"\x1f\x8b", "gzip-compressed"), (b"%PDF", "a PDF")),
    *((b"\x28\xb5\x2f\xfd", "zstd-compressed"), (b"BZh", "bzip2-compressed"), (b"\xfd7zXZ", "xz-compressed"), (b"\x89PNG", "an image")),
    *((b"\xd0\xcf\x11\xe0", "an old Excel workbook"), (b"ARROW1", "an Arrow file"), (b"SQLite format 3", "an SQLite database")),
)
_PLAIN = "upload JSON Lines (one JSON object a line), CSV or Parquet"
_MAX_RECORD_LINES = 10_000
csv.field_size_limit(4 * MAX_LINE_BYTES)  # records are capped by their bytes, below this


class Source(Protocol):
    """``records`` begins anew each time; a ``BadLine`` takes the place of a record that cannot be read."""

    format: str
    encoding: str

    def records(self) -> Iterator[Record]: ...


class Unreadable(Exception):
    """The file as a whole is none that can be read: (cause, line, message, fix)."""

    def __init__(self, cause: str, line: int | None, message: str, fix: str, text: str = ""):
        self.cause, self.line, self.message, self.fix, self.text = cause, line, message, fix, text
        super().__init__(message)


def open_source(file: BinaryIO, *, filename: str, encoding: str, warnings: Findings) -> Source:
    """``file`` (binary, seekable) by its content, and by ``filename`` where content does not tell.

    ``encoding``: one of ``ENCODINGS``, or "" to recognise it. Raises ``Unreadable``.
    """
    file.seek(0)
    head = file.read(4096)
    if head.startswith(b"PAR1"):
        return ParquetSource(file)
    for magic, name in _MAGIC:
        if head.startswith(magic):
            raise Unreadable("wrong_format", None, f"the file is {name}", _PLAIN)
    if not encoding and (foreign := foreign_encoding(head)):
        choose = ", or choose the encoding UTF-16" if foreign == "UTF-16" else ""
        raise Unreadable("encoding", 1, f"the file is encoded in {foreign}", f"save it as UTF-8{choose}")
    if is_csv(head, filename, encoding):
        return _csv(file, encoding, warnings)
    return JsonLines(file=file, encoding=encoding or "utf-8")


def is_csv(head: bytes, filename: str, encoding: str) -> bool:
    text = head.decode("utf-16" if encoding == "utf-16" else "latin-1", "ignore").removeprefix("\xef\xbb\xbf").lstrip()
    suffix = PurePath(filename).suffix.lower()
    if text.startswith(("{", "[")) or not text:
        return False
    if suffix in (".csv", ".tsv", ".tab"):
        return True
    first = text.partition("\n")[0]
    return suffix not in (".jsonl", ".ndjson", ".json") and any(mark in first for mark in DELIMITERS) and not first.startswith('"prompt":')


@dataclass(kw_only=True)
class JsonLines:
    file: BinaryIO
    encoding: str
    format: str = field(default="jsonl", init=False)

    def records(self) -> Iterator[Record]:
        for number, line in lines(_decoded(self.file, self.encoding)):
            yield number, _json_record(line)


def _json_record(line: bytes) -> dict[str, Any] | BadLine:
    if len(line) > MAX_LINE_BYTES:
        return _too_long(line)
    try:
        return decode(line)
    except BadLine as bad:
        return bad


def _too_long(line: bytes) -> BadLine:
    message = f"the line is longer than {MAX_LINE_BYTES:,} bytes"
    return BadLine("long_line", None, message, "shorten the row or remove columns that no reward reads", excerpt(line))


def _decoded(file: BinaryIO, encoding: str) -> Lines:
    file.seek(0)
    return file if encoding == "utf-8" else Recoded(file, encoding)


def _csv(file: BinaryIO, encoding: str, warnings: Findings) -> CsvFile:
    if not encoding:
        encoding = "utf-8"
        if (bad := first_not_utf8(file)) is not None:
            encoding = _one_byte(file, bad, warnings)
    number, first = next(iter(lines(_decoded(file, encoding))), (1, b""))
    skip = 0
    if told := re.fullmatch(rb'"?sep=(.)"?', first):  # a spreadsheet's own note of its delimiter
        return CsvFile(file=file, encoding=encoding, delimiter=told[1].decode(), skip=number)
    header = re.sub(r'"[^"]*"', "", first.decode(errors="replace"))
    delimiter = max(DELIMITERS, key=header.count)
    return CsvFile(file=file, encoding=encoding, delimiter=delimiter, skip=skip)


def _one_byte(file: BinaryIO, bad: tuple[int, int, int], warnings: Findings) -> str:
    line, byte, _ = bad
    if not looks_like_windows(file):
        text = f"not UTF-8: byte {byte:#04x}"
        raise Unreadable("encoding", line, text, "save the file as CSV UTF-8, or choose the encoding that it has")
    message = f"the file is not UTF-8 (byte {byte:#04x} in line {line}), so it is read as Windows-1252"
    warnings.add("encoding", line, None, message, "look whether accents and quotes are right; if not, save it as CSV UTF-8")
    return "windows-1252"


@dataclass(kw_only=True)
class CsvFile:
    """The first line names the columns; a record has the number of its first line. ``skip``: lines before the header."""

    file: BinaryIO
    encoding: str
    delimiter: str = ","
    skip: int = 0
    format: str = field(default="csv", init=False)
    _header_line: int = field(default=1, init=False)
    _unnamed: bool = field(default=False, init=False)

    def records(self) -> Iterator[Record]:
        feed = _Feed(lines(_decoded(self.file, self.encoding), keep_ends=True), self.skip)
        reader = csv.reader(feed, delimiter=self.delimiter, strict=True)
        try:
            header = self._header(reader, feed)
            if header is not None:
                yield from self._rows(reader, feed, header)
        except BadLine as bad:
            yield feed.start, ending(bad)

    def _header(self, reader: Any, feed: _Feed) -> list[str] | None:
        for cells in self._cells(reader, feed):
            if isinstance(cells, BadLine):
                raise cells
            if any(cells):
                self._header_line, self._unnamed = feed.start, not cells[-1].strip()
                return _checked_header([cell.strip() for cell in cells])
        return None

    def _rows(self, reader: Any, feed: _Feed, header: list[str]) -> Iterator[Record]:
        width = len(header)
        for cells in self._cells(reader, feed):
            if isinstance(cells, BadLine):
                yield feed.start, cells
            elif len(cells) == width:
                if width == 1 or any(cells):  # spreadsheets leave rows of empty cells at the end
                    yield feed.start, dict(zip(header, cells, strict=True))
            elif any(cells):
                if self._unnamed and len(cells) > width and any(cells[width:]):
                    yield self._header_line, ending(_no_name(width + 1, header))
                    return
                yield feed.start, _ragged(cells, width, header)

    def _cells(self, reader: Any, feed: _Feed) -> Iterator[list[str] | BadLine]:
        while True:
            feed.begin_record()
            try:
                yield next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                bad = _csv_fault(str(error), feed.first)
                yield bad
                if bad.cause == "unclosed_quote":
                    return


class _Feed:
    """Decoded lines for a CSV reader; knows where the record began, and ends one that grows without end."""

    def __init__(self, numbered: Iterator[tuple[int, bytes]], skip: int):
        self._numbered = numbered
        self._skip = skip
        self._fresh = True
        self._bytes = self._lines = 0
        self.start, self.first = 1, b""

    def begin_record(self) -> None:
        self._fresh, self._bytes, self._lines = True, 0, 0

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        number, raw = next(self._numbered)
        while number <= self._skip:
            number, raw = next(self._numbered)
        if self._fresh:
            self.start, self.first, self._fresh = number, raw, False
        self._lines += 1
        self._bytes += len(raw)
        if self._bytes > MAX_LINE_BYTES or self._lines > _MAX_RECORD_LINES:
            raise _endless(self.first, self._lines)
        if b"\x00" in raw:
            self.start = number
            message = f"a NUL byte at position {raw.index(0) + 1}"
            raise BadLine("nul", None, message, "remove it; the file may be binary or UTF-16", excerpt(raw, raw.index(0)))
        try:
            return raw.decode()
        except UnicodeDecodeError as bad:
            self.start = number
            text = f"not UTF-8: byte {raw[bad.start]:#04x} at position {bad.start + 1}"
            raise BadLine("encoding", None, text, "save the file as CSV UTF-8, or choose the encoding that it has", raw) from None


def _endless(raw: bytes, line_count: int) -> BadLine:
    if line_count == 1:
        return _too_long(raw)
    message = f"a quoted cell begins here and is not closed within {line_count:,} lines"
    return BadLine("unclosed_quote", None, message, 'close the quotes; a quote inside a quoted cell is written twice: ""', raw)


def _csv_fault(text: str, raw: bytes) -> BadLine:
    if "unexpected end of data" in text:
        fix = 'close the quotes; a quote inside a quoted cell is written twice: ""'
        return BadLine("unclosed_quote", None, "a quoted cell begins here and is never closed", fix, raw)
    if "new-line character seen" in text:
        return BadLine("line_ends", None, "a bare carriage return inside the line", "save the file with line ends of Windows or Unix", raw)
    if "expected after" in text:
        fix = 'put quotes around the whole cell; a quote inside it is written twice: ""'
        return BadLine("quotes", None, "text follows a closing quote in the same cell", fix, raw)
    return BadLine("broken_csv", None, f"broken CSV: {text}", "save the file as CSV UTF-8 again", raw)


def _checked_header(header: list[str]) -> list[str]:
    while header and not header[-1]:
        header.pop()
    if "" in header:
        raise _no_name(header.index("") + 1, header)
    if repeated := next((name for name in header if header.count(name) > 1), None):
        fix = "give each column its own name"
        raise BadLine("duplicate_column", repeated[:100], "the header names this column twice", fix, ", ".join(header))
    return header


def _no_name(position: int, header: list[str]) -> BadLine:
    return BadLine("header", None, f"column {position} has no name in the header", "name each column in the first line", ", ".join(header))


def _ragged(cells: list[str], width: int, header: list[str]) -> BadLine | dict[str, str]:
    if len(cells) > width and not any(cells[width:]):
        return dict(zip(header, cells[:width], strict=True))  # empty cells to the right of the table
    message = f"the row has {len(cells)} cells, but the header names {width} columns"
    fix = "quote cells that contain the delimiter, and give every row the same number of cells"
    return BadLine("ragged", None, message, fix, excerpt(" | ".join(cells)))


def encoding_names() -> list[tuple[str, str]]:
    """Choices for a form."""
    return [("", "recognise it"), *ENCODINGS.items()]
