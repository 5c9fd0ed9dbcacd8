"""How fast files are checked and in how much memory: each format in a process of its own, so that its peak is its own.

``python manage.py validate_dataset --bench``, or without Django ``python -m portal.datasets.bench [--bytes N]``. Speed is measured here
and asserted nowhere.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from portal.datasets.validate import Options, validate

BYTES = 64 << 20
FORMATS = ("jsonl", "csv", "parquet")
CHILD_SECONDS = 3600.0
_WORDS = ("apples", "boxes", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "tickets", "books")
_PARQUET_ROWS = 10_000


def run(size: int) -> Iterator[dict[str, Any]]:
    """{"format", "rows", "mb", "seconds", "rows_per_second", "rows_per_cpu_second", "peak_mb", "errors"} of each format."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for kind in FORMATS:
            path = Path(folder) / f"rows.{kind}"
            make(path, kind, size)
            command = [sys.executable, "-m", "portal.datasets.bench", "--file", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=CHILD_SECONDS, check=True)
            yield {"format": kind, **json.loads(done.stdout)}
            path.unlink()


def measure(path: Path) -> dict[str, Any]:
    """``peak_mb``: of this process or of the decoder it starts, whichever took more."""
    begun, cpu_begun = time.perf_counter(), time.process_time()
    with path.open("rb") as file:
        checked = validate(file, max_bytes=1 << 40, options=Options(filename=path.name))
    seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    peak = max(_own_peak_kb(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
    figures = {"rows": checked.rows, "mb": path.stat().st_size >> 20, "seconds": round(seconds, 2), "errors": checked.errors.total}
    speeds = {"rows_per_second": round(checked.rows / seconds), "rows_per_cpu_second": round(checked.rows / cpu_seconds)}
    return {**figures, **speeds, "peak_mb": peak >> 10}


def _own_peak_kb() -> int:
    """Since the program began; what getrusage tells is inherited from whoever started it."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))


def make(path: Path, kind: str, size: int) -> None:
    """Word problems with answers, until ``path`` has about ``size`` bytes."""
    rows = _rows(random.Random(0))
    if kind == "parquet":
        _make_parquet(path, rows, size)
        return
    with path.open("w") as file:
        file.write("" if kind == "jsonl" else "prompt,answer,level\n")
        while file.tell() < size:
            for _ in range(1000):
                prompt, answer, level = next(rows)
                line = (
                    json.dumps({"prompt": prompt, "answer": answer, "level": level}) if kind == "jsonl" else f'"{prompt}",{answer},{level}'
                )
                file.write(f"{line}\n")


def _make_parquet(path: Path, rows: Iterator[tuple[str, str, int]], size: int) -> None:
    import pyarrow
    import pyarrow.parquet

    schema = pyarrow.schema([("prompt", pyarrow.string()), ("answer", pyarrow.string()), ("level", pyarrow.int64())])
    written = 0
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while written < size:
            columns = list(zip(*(next(rows) for _ in range(_PARQUET_ROWS)), strict=True))
            batch = pyarrow.record_batch(columns, schema=schema)
            written += batch.nbytes
            writer.write_batch(batch)


def _rows(rng: random.Random) -> Iterator[tuple[str, str, int]]:
    while True:
        a, b, thing = rng.randrange(10**6), rng.randrange(10**6), rng.choice(_WORDS)
        yield f"Ada has {a} {thing} and gets {b} more, then gives half away. How many {thing} are left?", str((a + b) // 2), a % 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--file", type=Path, help="measure this file")
    parser.add_argument("--bytes", type=int, default=BYTES)
    given = parser.parse_args()
    if given.file:
        print(json.dumps(measure(given.file)))
        return
    for figures in run(given.bytes):
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
