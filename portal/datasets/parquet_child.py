"""Runs as a process of its own: a Parquet file on standard input, its rows as lines on standard output. See ``parquet``.

Each line is R and a row as JSON, B and a row that cannot be used, or E and the reason why reading ends. Imports pyarrow, msgspec and the
standard library only; ``python -I`` runs it by its path.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

BATCH_ROWS = 64
BATCH_SECONDS = 20.0
MAX_ROW_BYTES = 1024 * 1024
MAX_FOOTER_BYTES = 8 << 20
MAX_ROWS = 100_000_000
MAX_COLUMNS = 200
MAX_OPEN_FILES = 64
MAX_DEPTH = 32
MAX_ROWS_PER_BYTE = 4
_encoder = msgspec.json.Encoder(enc_hook=lambda value: repr(value)[:100])


class Refused(Exception):
    """Ends the reading: (cause, column, message, fix); an empty fix means the usual one."""

    def __init__(self, cause: str, column: str | None, message: str, fix: str = ""):
        self.told = {"cause": cause, "column": column, "message": message, "fix": fix}
        super().__init__(message)


def main() -> None:
    out = os.fdopen(1, "wb", buffering=1 << 16)
    try:
        _write_rows(out, int(sys.argv[1]))
    except Refused as refused:
        out.write(b"E" + msgspec.json.encode(refused.told) + b"\n")
    out.flush()


def _write_rows(out: Any, data_bytes: int) -> None:
    _check_footer()
    import pyarrow
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    pyarrow.set_io_thread_count(1)
    _limit(data_bytes)
    try:
        for line in _lines(pyarrow, pyarrow.parquet):
            signal.setitimer(signal.ITIMER_REAL, 0)  # a reader may take its time
            out.write(line)
            signal.setitimer(signal.ITIMER_REAL, BATCH_SECONDS)
    except MemoryError:
        raise Refused("bomb", None, f"a part of the file expands to more than {data_bytes / 1e6:.0f} MB") from None
    except (pyarrow.ArrowException, OSError, ValueError, RecursionError) as error:
        text = " ".join(str(error).split())[:200]
        raise Refused("broken_parquet", None, f"the file cannot be decoded: {text}", "write the file again") from None


def _limit(data_bytes: int) -> None:
    """From here on only so much more memory than now; what needs more fails with ``MemoryError``."""
    limit = _data_bytes_now() + data_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.setitimer(signal.ITIMER_REAL, BATCH_SECONDS)


def _data_bytes_now() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmData:"))


def _check_footer() -> None:
    """The last eight bytes tell the length of the metadata, which the decoder would read whole."""
    size = os.fstat(0).st_size
    tail = os.pread(0, 8, max(0, size - 8))
    if size < 12 or tail[4:] != b"PAR1":
        raise Refused("truncated", None, "the Parquet file ends before its metadata: it is cut off", "upload the whole file")
    length = int.from_bytes(tail[:4], "little")
    if length > min(size, MAX_FOOTER_BYTES):
        raise Refused("broken_parquet", None, f"the metadata claims to be {length:,} bytes", "write the file again")


def _lines(pa: Any, pq: Any) -> Iterator[bytes]:
    source = pa.OSFile("/proc/self/fd/0", "rb")
    shape = pq.ParquetFile(source)
    schema = shape.schema_arrow
    metadata = shape.metadata
    if metadata.num_rows > MAX_ROWS:
        raise Refused("too_many_rows", None, f"the file has {metadata.num_rows:,} rows, more than {MAX_ROWS:,}", "split it")
    if len(schema.names) > MAX_COLUMNS:
        raise Refused("too_many_columns", None, f"the file has {len(schema.names):,} columns", "keep those that rewards read")
    if repeated := next((name for name in schema.names if schema.names.count(name) > 1), None):
        raise Refused("duplicate_column", repeated[:100], "the file has two columns of this name", "give each column its own name")
    for field in schema:
        if _depth(field.type) > MAX_DEPTH:
            raise Refused("too_deep", field.name[:100], f"nested more than {MAX_DEPTH} levels deep", "flatten the rows")
    if metadata.num_rows > MAX_ROWS_PER_BYTE * os.fstat(0).st_size:
        raise Refused("bomb", None, f"{os.fstat(0).st_size:,} bytes claim to hold {metadata.num_rows:,} rows: a decompression bomb")
    kept = [field.name for field in schema if not _binary(pa, field.type)]
    # Few rows at a time: a long text that many rows share is a few bytes in the file and as many copies here.
    file = pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 16, memory_map=False)
    for batch in file.iter_batches(batch_size=BATCH_ROWS, columns=kept, use_threads=False):
        yield from _rows(pa, batch)


def _depth(kind: Any) -> int:
    return 1 + max((_depth(kind.field(index).type) for index in range(kind.num_fields)), default=0)


def _binary(pa: Any, kind: Any) -> bool:
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return True
    return any(_binary(pa, kind.field(index).type) for index in range(kind.num_fields))


def _coarse(pa: Any, column: Any) -> Any:
    """Python has no nanoseconds."""
    if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column


def _rows(pa: Any, batch: Any) -> Iterator[bytes]:
    columns = [_coarse(pa, column).to_pylist() for column in batch.columns]
    names, encode = batch.schema.names, _encoder.encode
    for values in zip(*columns, strict=True):
        line = encode(dict(zip(names, values, strict=True)))
        if len(line) > MAX_ROW_BYTES:
            told = {"cause": "long_line", "column": None, "message": f"the row has {len(line):,} bytes, more than {MAX_ROW_BYTES:,}"}
            line = msgspec.json.encode({**told, "fix": "shorten the row or remove columns that no reward reads"})
            yield b"B" + line + b"\n"
        else:
            yield b"R" + line + b"\n"


if __name__ == "__main__":
    main()
