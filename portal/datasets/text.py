"""Reading text files of strangers line by line: every line numbered and capped, encodings recognised, nothing held whole."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from portal.datasets.rows import BadLine

MAX_LINE_BYTES = 1024 * 1024
ENCODINGS = {"utf-8": "UTF-8", "windows-1252": "Windows-1252", "utf-16": "UTF-16"}
UTF8_BOM = b"\xef\xbb\xbf"
_CHUNK_BYTES = 1 << 20
_BOMS = ((b"\xff\xfe\x00\x00", "UTF-32"), (b"\x00\x00\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
# Bytes that text in a one-byte encoding does not have: control characters, and the five that Windows-1252 leaves undefined.
_NOT_WINDOWS = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f\x81\x8d\x8f\x90\x9d]")


class Lines(Protocol):
    """Of binary files only this is used, so that a recoded one will do."""

    def readline(self, size: int, /) -> bytes: ...


class Recoded:
    """``file`` in another ``encoding``, read as lines of UTF-8. Raises ``BadLine`` where the bytes are not of that encoding."""

    def __init__(self, file: BinaryIO, encoding: str):
        self._encoding = encoding
        self._text = io.TextIOWrapper(_Unclosed(file), encoding=encoding, newline="\n")

    def readline(self, size: int, /) -> bytes:
        try:
            return self._text.readline(size).encode("utf-8", "surrogatepass")
        except UnicodeDecodeError as bad:
            text = f"not {ENCODINGS[self._encoding]}: byte {bad.object[bad.start]:#04x}"
            raise BadLine("encoding", None, text, "choose the encoding that the file really has", None) from None


class _Unclosed(io.RawIOBase):
    """Lends a file to a wrapper that would close it."""

    def __init__(self, file: BinaryIO):
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def lines(file: Lines, *, keep_ends: bool = False) -> Iterator[tuple[int, bytes]]:
    """(line number from 1, line without its end) of every line that is not blank; a line over the cap is cut to just over it.

    ``keep_ends``: blank lines and line ends too, as a CSV reader needs them.
    """
    number = 0
    readline = file.readline
    while raw := readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(raw) > MAX_LINE_BYTES and not raw.endswith(b"\n"):
            _skip_line(file)
        if number == 1:
            raw = raw.removeprefix(UTF8_BOM)
        if keep_ends:
            yield number, raw
        elif line := raw.strip(b" \t\r\n"):
            yield number, line


def _skip_line(file: Lines) -> None:
    while (rest := file.readline(MAX_LINE_BYTES)) and not rest.endswith(b"\n"):
        pass


def foreign_encoding(head: bytes) -> str | None:
    """The name of the encoding that a file beginning with ``head`` has, when it is surely not UTF-8."""
    for bom, name in _BOMS:
        if head.startswith(bom):
            return name
    pairs = len(head) // 2
    few, many = sorted((head[0::2].count(0), head[1::2].count(0)))
    return "UTF-16" if pairs >= 8 and many > 0.8 * pairs and few < 0.1 * pairs else None


def first_not_utf8(file: BinaryIO) -> tuple[int, int, int] | None:
    """(line, byte, position in the file) of the first byte that is not UTF-8. Leaves the file at its start."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line, before = 1, 0
    file.seek(0)
    try:
        while chunk := file.read(_CHUNK_BYTES):
            try:
                decoder.decode(chunk)
            except UnicodeDecodeError as bad:
                pending = len(bad.object) - len(chunk)
                at = bad.start - pending
                return line + chunk[: max(0, at)].count(b"\n"), bad.object[bad.start], before + at
            line += chunk.count(b"\n")
            before += len(chunk)
        return None
    finally:
        file.seek(0)


def looks_like_windows(file: BinaryIO) -> bool:
    """Whether every byte could be text in Windows-1252. Leaves the file at its start."""
    file.seek(0)
    try:
        return not any(_NOT_WINDOWS.search(chunk) for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""))
    finally:
        file.seek(0)
