"""Files that are small and expand without end are refused, in a child that can take no more memory than it was given."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from portal.datasets import parquet as reading
from portal.datasets.validate import Options, validate
from tests.portal.datasets.bad_files import parquet


def error(content: bytes) -> dict[str, Any]:
    report = validate(io.BytesIO(content), max_bytes=1 << 40, options=Options(filename="rows.parquet")).report
    assert report["error_total"] == 1, report
    return report["errors"][0]


def bomb(folder: Path, kind: str) -> bytes:
    import pyarrow

    columns = {
        "one long text in every row": lambda: {"prompt": pyarrow.DictionaryArray.from_arrays([0] * 1500, ["x" * 1_000_000])},
        "a text of a hundred megabytes": lambda: {"prompt": ["y" * 100_000_000]},
        "many rows in few bytes": lambda: {"prompt": ["q"] * 1_000_000},
        "a list without end": lambda: {"prompt": ["q"], "ids": pyarrow.ListArray.from_arrays([0, 20_000_000], pyarrow.nulls(20_000_000))},
        "a list of long texts": lambda: {"prompt": ["q"], "texts": [["z" * 1_000_000] * 150]},
    }[kind]()
    return parquet(folder, columns, compression="zstd")


@pytest.mark.parametrize(
    "kind",
    ["one long text in every row", "a text of a hundred megabytes", "many rows in few bytes", "a list without end", "a list of long texts"],
)
def test_a_bomb_is_refused_as_one_in_little_memory(tmp_path: Path, kind: str) -> None:
    content = bomb(tmp_path, kind)
    assert len(content) < 100_000
    assert error(content)["cause"] == "bomb"
    path = tmp_path / "bomb.parquet"
    path.write_bytes(content)
    # A process inherits its parent's peak over fork and exec, and pytest's is large: a shell stands between.
    command = ["sh", "-c", f"{sys.executable} -m portal.datasets.bench --file {path}; exit $?"]
    figures = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=100).stdout)
    assert figures["errors"] == 1
    assert figures["peak_mb"] < 150


def test_rows_that_expand_slowly_are_stopped_by_their_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "RATIO_FROM_BYTES", 1 << 20)
    content = parquet(tmp_path, {"prompt": [f"{n % 7}{'x' * 2000}" for n in range(2000)]}, compression="zstd")
    assert "bytes expand to more than" in error(content)["message"]


def test_a_row_too_long_is_that_rows_fault_only(tmp_path: Path) -> None:
    noise = os.urandom(700_000).hex()
    content = parquet(tmp_path, {"prompt": ["a", noise, "c"]})
    report = validate(io.BytesIO(content), max_bytes=1 << 40).report
    assert (report["rows"], [(fault["line"], fault["cause"]) for fault in report["errors"]]) == (3, [(2, "long_line")])


@pytest.mark.parametrize(("code", "cause"), [(-signal.SIGALRM, "too_slow"), (-signal.SIGSEGV, "broken_parquet"), (1, "broken_parquet")])
def test_a_decoder_that_dies_is_a_fault_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, cause: str) -> None:
    child = tmp_path / "child.py"
    child.write_text(f"import os, signal\n{'os.kill(os.getpid(), ' + str(-code) + ')' if code < 0 else 'raise SystemExit(1)'}\n")
    monkeypatch.setattr(reading, "CHILD", child)
    assert error(b"PAR1" + b"\x00" * 50)["cause"] == cause


def test_no_decoder_outlives_a_reader_that_stops_early(tmp_path: Path) -> None:
    content = parquet(tmp_path, {"prompt": [f"{n}" for n in range(50_000)]})
    records = reading.ParquetSource(io.BytesIO(content)).records()
    next(records)
    records.close()
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_the_decoder_sees_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child = tmp_path / "child.py"
    child.write_text('import json, os\nprint("R" + json.dumps({"prompt": " ".join(os.environ)}))\n')
    monkeypatch.setattr(reading, "CHILD", child)
    monkeypatch.setenv("MARLAAS_SECRET_KEY", "x")
    [(_, row)] = reading.ParquetSource(io.BytesIO(b"PAR1" + b"\x00" * 50)).records()
    assert "MARLAAS_SECRET_KEY" not in row["prompt"]
