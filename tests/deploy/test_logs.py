from __future__ import annotations

import os
from pathlib import Path

from deploy.supervisor import logs


def test_a_small_log_is_left_alone(tmp_path: Path):
    (tmp_path / "a.log").write_text("x" * 10)
    assert not logs.rotate(tmp_path / "a.log", max_bytes=10)


def test_a_grown_log_moves_aside_and_its_writer_goes_on_at_the_start(tmp_path: Path):
    log = tmp_path / "a.log"
    writer = logs.open_log(log)
    os.write(writer, b"old" * 10)
    assert logs.rotate(log, max_bytes=10)
    os.write(writer, b"new")
    os.close(writer)
    assert (log.read_text(), (tmp_path / "a.log.1").read_text()) == ("new", "old" * 10)


def test_only_so_many_old_logs_are_kept(tmp_path: Path):
    log = tmp_path / "a.log"
    for turn in range(6):
        log.write_text(f"{turn}" * 20)
        logs.rotate(log, max_bytes=10, kept=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "a.log.1", "a.log.2", "a.log.3"]
    assert (tmp_path / "a.log.3").read_text() == "3" * 20


def test_the_tail_shows_only_what_this_start_wrote(tmp_path: Path):
    log = tmp_path / "a.log"
    log.write_text("before\n")
    mark = log.stat().st_size
    with log.open("a") as writer:
        writer.write("one\ntwo\nthree\n")
    assert logs.tail(log, 2, from_byte=mark) == ["two", "three"]


def test_the_tail_of_a_log_that_was_rotated_meanwhile_shows_what_is_there(tmp_path: Path):
    (tmp_path / "a.log").write_text("short\n")
    assert logs.tail(tmp_path / "a.log", 5, from_byte=10_000) == ["short"]
