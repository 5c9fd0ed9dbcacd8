from __future__ import annotations

import shutil

import pytest

from engine.epoch import StaleEpoch, claim
from engine.store import SNAPSHOT_FILES, BadSnapshot, Corrupt, StaleCommit, Store, UnknownVersion
from tests.engine.crashes import Died, dies_at, points_of


def snapshot(tag: str) -> dict[str, bytes]:
    return {name: f"{name} {tag}".encode() for name in SNAPSHOT_FILES}


def open_store(root, crash_at=lambda name: None) -> Store:
    return Store(root / "jobs", claim(root), crash_at=crash_at)


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path)
    store.create("job_a", snapshot("0"))
    return store


def test_a_created_job_is_at_version_0(store):
    assert store.head("job_a") == 0
    assert store.snapshot("job_a", 0) == snapshot("0")


def test_a_commit_moves_head_by_one(store):
    store.commit("job_a", 1, snapshot("1"), {"step": 1})
    assert (store.head("job_a"), store.versions("job_a")) == (1, [0, 1])
    assert store.snapshot("job_a", 1) == snapshot("1")
    assert store.step("job_a", 1) == {"step": 1}


@pytest.mark.parametrize("version", [0, 2, 3])
def test_only_the_version_after_head_can_be_committed(store, version):
    with pytest.raises(StaleCommit):
        store.commit("job_a", version, snapshot("x"), {})
    assert store.snapshot("job_a", 0) == snapshot("0")


def test_a_version_cannot_be_committed_twice(store):
    store.commit("job_a", 1, snapshot("1"), {})
    with pytest.raises(StaleCommit):
        store.commit("job_a", 1, snapshot("other"), {})
    assert store.snapshot("job_a", 1) == snapshot("1")


def test_a_job_cannot_be_created_twice(store):
    with pytest.raises(StaleCommit):
        store.create("job_a", snapshot("other"))


def test_an_older_manager_can_neither_commit_nor_write_batches(store, tmp_path):
    claim(tmp_path)
    with pytest.raises(StaleEpoch):
        store.commit("job_a", 1, snapshot("1"), {})
    with pytest.raises(StaleEpoch):
        store.put_rollout("job_a", 0, 1, b"batch")
    assert store.head("job_a") == 0


def test_a_snapshot_without_its_optimizer_is_refused(store):
    files = snapshot("1")
    del files["optimizer.safetensors"]
    with pytest.raises(BadSnapshot, match="optimizer"):
        store.commit("job_a", 1, files, {})


def test_changed_bytes_are_not_read(store, tmp_path):
    (tmp_path / "jobs/job_a/v0/optimizer.safetensors").write_bytes(b"planted")
    with pytest.raises(Corrupt, match="optimizer"):
        store.snapshot("job_a", 0)
    assert set(store.adapter("job_a", 0)) == {"adapter_model.safetensors", "adapter_config.json"}


@pytest.mark.parametrize(("job", "version"), [("job_a", 1), ("job_a", -1), ("job_b", 0), ("../job_a", 0)])
def test_an_unknown_version_is_said_to_be_unknown(store, job, version):
    with pytest.raises(UnknownVersion):
        store.adapter(job, version)


def test_a_batch_is_read_back_as_written(store):
    assert store.ready_attempt("job_a", 0) is None
    store.put_rollout("job_a", 0, 1, b"first")
    store.put_rollout("job_a", 0, 2, b"second")
    assert store.ready_attempt("job_a", 0) == 2
    assert store.read_rollout("job_a", 0, 1) == b"first"


def test_a_batch_of_an_older_version_is_refused(store):
    store.commit("job_a", 1, snapshot("1"), {})
    with pytest.raises(StaleCommit, match="stale"):
        store.put_rollout("job_a", 0, 1, b"late")


def test_old_versions_can_be_dropped_but_not_head(store):
    store.commit("job_a", 1, snapshot("1"), {})
    store.drop_versions("job_a", [0])
    assert store.versions("job_a") == [1]
    with pytest.raises(ValueError, match="HEAD"):
        store.drop_versions("job_a", [1])


def test_a_retention_rule_is_applied_after_each_commit_and_never_takes_head(tmp_path):
    store = Store(tmp_path / "jobs", claim(tmp_path), retain=lambda versions: versions[:1])
    store.create("job_a", snapshot("0"))
    for version in (1, 2, 3):
        store.commit("job_a", version, snapshot(str(version)), {})
    assert store.versions("job_a") == [0, 3]


def test_a_deleted_job_leaves_nothing(store, tmp_path):
    store.delete("job_a")
    store.delete("job_a")
    assert list((tmp_path / "jobs").iterdir()) == []


def commit_points(root) -> list[str]:
    def commit(hook):
        store = open_store(root, hook)
        store.create("job_a", snapshot("0"))

    points = points_of(commit)
    shutil.rmtree(root / "jobs")
    return points


def test_a_commit_that_crashes_anywhere_is_wholly_there_or_not_at_all(tmp_path):
    points = commit_points(tmp_path)
    assert len(points) == 13
    for number, point in enumerate(points):
        root = tmp_path / str(number)
        open_store(root).create("job_a", snapshot("0"))
        with pytest.raises(Died):
            open_store(root, dies_at(point)).commit("job_a", 1, snapshot("1"), {"step": 1})
        reopened = open_store(root)
        head = reopened.head("job_a")
        assert head == (1 if point in ("commit:head:renamed", "commit:done") else 0), point
        assert reopened.snapshot("job_a", head) == snapshot(str(head))
        assert reopened.versions("job_a") == list(range(head + 1))
        assert [path.name for path in (root / "jobs/job_a").iterdir() if "staging" in path.name] == []


def test_after_a_crashed_commit_the_same_version_can_be_committed(tmp_path):
    open_store(tmp_path).create("job_a", snapshot("0"))
    with pytest.raises(Died):
        open_store(tmp_path, dies_at("commit:renamed")).commit("job_a", 1, snapshot("lost"), {})
    reopened = open_store(tmp_path)
    reopened.commit("job_a", 1, snapshot("again"), {})
    assert reopened.snapshot("job_a", 1) == snapshot("again")


def test_a_commit_that_failed_after_its_rename_can_be_repeated_without_reopening(tmp_path):
    disk_is_full = [OSError("no space left")]

    def crash_at(name):
        if name == "commit:renamed" and disk_is_full:
            raise disk_is_full.pop()

    open_store(tmp_path).create("job_a", snapshot("0"))
    store = open_store(tmp_path, crash_at)
    with pytest.raises(OSError, match="no space"):
        store.commit("job_a", 1, snapshot("lost"), {})
    store.commit("job_a", 1, snapshot("again"), {})
    assert store.snapshot("job_a", 1) == snapshot("again")


@pytest.mark.parametrize("point", ["rollout:staged", "rollout:renamed"])
def test_a_batch_that_crashes_while_written_is_whole_or_absent(tmp_path, point):
    open_store(tmp_path).create("job_a", snapshot("0"))
    with pytest.raises(Died):
        open_store(tmp_path, dies_at(point)).put_rollout("job_a", 0, 1, b"batch")
    reopened = open_store(tmp_path)
    assert reopened.ready_attempt("job_a", 0) == (1 if point == "rollout:renamed" else None)
    assert list((tmp_path / "jobs").glob("**/*.staging")) == []
