"""Logs stay bounded, whoever writes to them."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from pathlib import Path

import pytest

from engine import log_files


def opened(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x" * 10)
    assert not log_files.rotate(tmp_path / "a.log", max_bytes=10)


def test_a_grown_log_moves_aside_and_its_writer_goes_on_at_the_start(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    writer = opened(log)
    os.write(writer, b"old" * 10)
    assert log_files.rotate(log, max_bytes=10)
    os.write(writer, b"new")
    os.close(writer)
    assert (log.read_text(), (tmp_path / "a.log.1").read_text()) == ("new", "old" * 10)


def test_only_so_many_old_logs_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for turn in range(6):
        log.write_text(f"{turn}" * 20)
        log_files.rotate(log, max_bytes=10, kept=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert (tmp_path / "a.log.3").read_text() == "3" * 20


def test_a_full_disk_takes_no_old_log_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: Path, target: Path) -> None:
        target.write_text("a part of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    for name, content in {"a.log": "now" * 10, "a.log.1": "before"}.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space"):
        log_files.rotate(tmp_path / "a.log", max_bytes=10)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"a.log": "now" * 10, "a.log.1": "before"}


def test_a_process_that_goes_on_logging_keeps_its_file_bounded(tmp_path: Path) -> None:
    """Lines that others write through the same descriptor, as its children do, count too."""
    log = tmp_path / "a.log"
    descriptor = opened(log)
    child = os.dup(descriptor)
    handler = log_files.BoundedHandler(log, descriptor, max_bytes=100)
    for number in range(40):
        handler.emit(logging.LogRecord("engine", logging.INFO, __file__, 1, "line %d", (number,), None))
        os.write(child, b"a child's line\n")
    handler.stream.close()
    os.close(child)
    assert log.stat().st_size <= 100 + 40
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert "line 39" in log.read_text() + (tmp_path / "a.log.1").read_text()
