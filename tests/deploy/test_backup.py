"""The scripts on a small engine that goes on working: what they copy is one moment, and what they bring back is that moment again."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import sqlite3
import subprocess
from pathlib import Path

import pytest

from engine import epoch
from engine.audit import audit
from tests.engine.world import World

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60


def script(name: str, state: Path, *words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if key not in ("DATABASE_URL", "MARLAAS_BACKUP_DATABASE_URL")}
    command = [str(ROOT / "deploy" / name), *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS, check=False, env={**kept, "MARLAAS_STATE": str(state), **environment}
    )


def backup(state: Path, folder: Path, **environment: str) -> Path:
    done = script("backup.sh", state, folder, **environment)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def slow_tar(folder: Path) -> dict[str, str]:
    """An environment whose tar says that it was ``reached`` and waits for ``go``, both files in ``folder``."""
    folder.mkdir()
    shim = folder / "tar"
    shim.write_text(
        f'#!/bin/sh\ntouch {folder}/reached\nwhile [ ! -e {folder}/go ]; do sleep 0.05; done\nexec {shutil.which("tar")} "$@"\n'
    )
    shim.chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


def restore(made: Path, state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return script("restore.sh", state, made, *words)


def database(state: Path, text: str) -> None:
    with sqlite3.connect(state / "db.sqlite3") as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("CREATE TABLE IF NOT EXISTS told (text)")
        connection.execute("INSERT INTO told VALUES (?)", (text,))


def told(state: Path) -> list[str]:
    with sqlite3.connect(state / "db.sqlite3") as connection:
        return [text for (text,) in connection.execute("SELECT text FROM told ORDER BY rowid")]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    state = tmp_path / "var"
    state.mkdir()
    database(state, "before")
    (state / "engine-secret").write_text("s3cret")
    return state


async def test_a_running_engine_is_copied_in_one_moment_and_its_jobs_go_on_from_there(state: Path, tmp_path: Path) -> None:
    world = World(state)
    waiting_tar = slow_tar(tmp_path / "bin")
    await world.open()
    await world.submit("job_a", steps=30)
    await world.submit("job_b", steps=30)
    await world.seen("job_a", "step", times=3)
    copying = asyncio.create_task(asyncio.to_thread(backup, state, tmp_path / "backups", **waiting_tar))
    await world.until((tmp_path / "bin" / "reached").exists)
    ended = await world.ended("job_a", "job_b")
    await world.manager.stop()
    (tmp_path / "bin" / "go").touch()
    made = await copying
    assert {data["state"] for data in ended.values()} == {"succeeded"}, "the copy must not disturb what it copies"
    shutil.rmtree(state)
    done = await asyncio.to_thread(restore, made, state)
    assert done.returncode == 0, done.stderr

    heads = [int((state / f"engine/jobs/{job}/HEAD").read_text()) for job in ended]
    assert 0 < sum(heads) < 60, "the copy is of the moment when it held the engine, not of when it wrote"
    back = World(state)
    await back.open()
    again = await back.ended("job_a", "job_b")
    await back.manager.stop()
    assert {job: (data["state"], data["version"]) for job, data in again.items()} == dict.fromkeys(ended, ("succeeded", 30))
    assert audit(state / "engine") == []
    assert not list(state.glob(".backup-*")) and not list(state.glob(".restore-*"))
    assert (told(state), (state / "engine-secret").read_text()) == (["before"], "s3cret")


async def test_it_waits_for_a_write_that_is_under_way(state: Path, tmp_path: Path) -> None:
    world = World(state)
    await world.open()
    await world.manager.stop()
    lock = state / "engine" / "epoch.lock"
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_SH)
        copying = asyncio.create_task(asyncio.to_thread(backup, state, tmp_path))
        await world.until(lambda: waits_for(lock))
        fcntl.flock(held, fcntl.LOCK_UN)
        assert (await copying).is_dir()


def waits_for(lock: Path) -> bool:
    """Whether the kernel has somebody waiting for this lock."""
    return any(" -> " in line and f":{lock.stat().st_ino} " in line for line in Path("/proc/locks").read_text().splitlines())


def test_a_restored_engine_writes_in_epochs_that_no_lost_one_had(state: Path, tmp_path: Path) -> None:
    epoch.claim(state / "engine")
    (state / "engine" / "journal").mkdir()
    made = backup(state, tmp_path)
    epoch.claim(state / "engine")  # lost with what comes after the copy
    assert restore(made, state, "--replace").returncode == 0
    assert epoch.claim(state / "engine").number == 1001


def test_it_changes_nothing_where_something_lies_and_moves_it_aside_when_told_to(state: Path, tmp_path: Path) -> None:
    made = backup(state, tmp_path)
    database(state, "after")
    refused = restore(made, state)
    assert (refused.returncode, "--replace" in refused.stderr, told(state)) == (1, True, ["before", "after"])
    assert restore(made, state, "--replace").returncode == 0
    [aside] = state.glob("replaced-*")
    assert (told(state), told(aside)) == (["before"], ["before", "after"])


def test_a_damaged_backup_changes_nothing(state: Path, tmp_path: Path) -> None:
    made = backup(state, tmp_path)
    with (made / "engine.tar").open("ab") as file:
        file.write(b"x")
    refused = restore(made, state, "--replace")
    assert (refused.returncode, "damaged" in refused.stderr, told(state)) == (1, True, ["before"])


def test_it_refuses_while_the_engine_holds_its_folder(state: Path, tmp_path: Path) -> None:
    made = backup(state, tmp_path)
    (state / "engine").mkdir(exist_ok=True)
    with (state / "engine" / "launcher.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = restore(made, state, "--replace")
    assert (refused.returncode, "still runs" in refused.stderr) == (1, True)


def test_a_backup_of_the_other_database_is_refused_with_the_way_out(state: Path, tmp_path: Path) -> None:
    made = backup(state, tmp_path)
    refused = script("restore.sh", state, made, DATABASE_URL="postgres://u@127.0.0.1:1/none")
    assert (refused.returncode, "DATABASE_URL" in refused.stderr) == (1, True)


def test_only_its_owner_can_read_a_backup(state: Path, tmp_path: Path) -> None:
    made = backup(state, tmp_path)
    assert made.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in made.iterdir())
