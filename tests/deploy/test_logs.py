from __future__ import annotations

from pathlib import Path

from deploy.supervisor import logs


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
