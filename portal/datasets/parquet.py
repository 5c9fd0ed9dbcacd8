"""Parquet files of strangers, read by a child process of hard limits (``parquet_child``).

A Parquet file can claim to be small and expand without end, and its decoder is C++ that parses hostile bytes. So the child may take
little memory, and is killed when it takes too long or writes too much; this side sees lines of JSON or the reason why not.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from portal.datasets.rows import BadLine, decode, ending

CHILD = Path(__file__).with_name("parquet_child.py")
DATA_BYTES = 64 << 20  # beside the 60 MB that the decoder takes to start
MAX_RATIO = 200
RATIO_FROM_BYTES = 32 << 20
END_SECONDS = 10.0
_BUFFER_BYTES = 1 << 16
_LOWER = "write it again with smaller row groups and pages (pyarrow: row_group_size=10_000, data_page_size=1_000_000), or as JSON Lines"


class ParquetSource:
    """Rows are numbered from 1. Binary columns, which no reward can read, are left out."""

    format = "parquet"
    encoding = "utf-8"

    def __init__(self, file: BinaryIO):
        self._file = file

    def records(self) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
        with _OnDisk(self._file) as file:
            file.seek(0, 2)
            size = file.tell()
            child = _start(file)
            try:
                yield from _read(child, size)
            finally:
                child.kill()
                child.wait(END_SECONDS)
                child.stdout.close()


def _read(child: subprocess.Popen, size: int) -> Iterator[tuple[int, dict[str, Any] | BadLine]]:
    """Lines of the child: R and a row, B and a row that cannot be used, E and what ends the reading."""
    number, expanded = 0, 0
    for number, line in enumerate(child.stdout, start=1):
        kind, text = line[:1], line[1:-1]
        expanded += len(text)
        if kind == b"E":
            yield number, ending(_told(text))
            return
        if expanded > RATIO_FROM_BYTES and expanded > MAX_RATIO * size:
            message = f"{size:,} bytes expand to more than {expanded:,}: a decompression bomb"
            yield number, ending(BadLine("bomb", None, message, "if the rows are meant, upload them as JSON Lines"))
            return
        try:
            yield number, decode(text) if kind == b"R" else _told(text)
        except BadLine as bad:
            yield number, bad
    if code := child.wait(END_SECONDS):
        yield number + 1, ending(_death(code))


def _told(text: bytes) -> BadLine:
    told = json.loads(text)
    return BadLine(told["cause"], told["column"], told["message"], told["fix"] or _LOWER)


def _death(code: int) -> BadLine:
    if code == -signal.SIGALRM:
        return BadLine("too_slow", None, "decoding the next rows took too long", _LOWER)
    return BadLine("broken_parquet", None, f"the file cannot be decoded (the decoder ended with {code})", "write the file again")


def _start(file: BinaryIO) -> subprocess.Popen:
    environment = {"PATH": os.defpath, "ARROW_DEFAULT_MEMORY_POOL": "system", "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-X", "utf8", str(CHILD), str(DATA_BYTES)]
    pipes = {"stdin": file, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, **pipes, env=environment, bufsize=_BUFFER_BYTES, start_new_session=True)


class _OnDisk:
    """``file`` as one with a descriptor: small uploads are only in memory."""

    def __init__(self, file: BinaryIO):
        self._file = file
        self._copy: BinaryIO | None = None

    def __enter__(self) -> BinaryIO:
        try:
            self._file.fileno()
        except (OSError, AttributeError):
            self._file.seek(0)
            self._copy = tempfile.TemporaryFile(prefix="parquet-")
            shutil.copyfileobj(self._file, self._copy)
            self._copy.flush()
        return self._copy or self._file

    def __exit__(self, *_: object) -> None:
        if self._copy is not None:
            self._copy.close()
