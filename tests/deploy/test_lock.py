from __future__ import annotations

from pathlib import Path

import pytest

from deploy.supervisor.lock import AlreadyRunning, Lock, is_free, stop_owner


def test_a_second_supervisor_is_refused_and_told_who_runs(tmp_path: Path):
    Lock(tmp_path / "lock").acquire({"pid": 41, "url": "http://here"})
    with pytest.raises(AlreadyRunning, match=r"pid 41, http://here.*make down"):
        Lock(tmp_path / "lock").acquire({"pid": 42, "url": "http://there"})


def test_a_released_lock_can_be_taken_again(tmp_path: Path):
    first = Lock(tmp_path / "lock")
    first.acquire({"pid": 41, "url": "u"})
    first.release()
    Lock(tmp_path / "lock").acquire({"pid": 42, "url": "u"})


def test_a_lock_file_left_by_a_dead_supervisor_holds_nothing(tmp_path: Path):
    (tmp_path / "lock").write_text('{"pid": 41, "url": "u"}')
    assert is_free(tmp_path / "lock")


def test_stopping_when_nothing_runs_says_so(tmp_path: Path):
    assert stop_owner(tmp_path / "lock", patience_seconds=1) is False
