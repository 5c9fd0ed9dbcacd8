"""Policy versions on disk: the only place where a version becomes true.

::

    root/{job}/HEAD                       the committed version, replaced atomically
    root/{job}/v{N}/                      adapter_model.safetensors, adapter_config.json, optimizer.safetensors, trainer.json,
                                          step.json (the result of the step that made N), manifest.json (sha256 and size of each)
    root/{job}/v{N}.staging/              a commit under way, or what a crash left of one: never read, swept at open
    root/{job}/rollouts/{V}/{A}.msgpack   the finished batch that attempt A sampled from version V
    root/{job}/rollouts/{V}/{A}.mismatch  by how much the trainer differed from the sampler on each of its tokens (engine.mismatch)
    root/{job}/evals/{V}.msgpack          what version V made of each held-out row

A version counts only when HEAD has reached it: a renamed directory above HEAD is a commit that crashed one moment too early, and is
swept like a staging folder. All methods block on the disk: call them in a thread. Each write holds the epoch's guard.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.durable import STAGING, CrashAt, fsync_directory, fsync_file, make_directory, no_crash, replace_file
from engine.epoch import Epoch
from engine.ports import ADAPTER_FILES, Snapshot

SNAPSHOT_FILES = (*ADAPTER_FILES, "optimizer.safetensors", "trainer.json")
_ROLLOUTS, _EVALS = "rollouts", "evals"
COMPLETIONS = (_ROLLOUTS, _EVALS)  # below a job's folder, all that it sampled
_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


class UnknownVersion(LookupError):
    """No such job, version or batch in the store."""


class StaleCommit(RuntimeError):
    """A commit of anything but HEAD + 1."""


class BadSnapshot(ValueError):
    """A snapshot that lacks a file, or holds one too many."""


class Corrupt(RuntimeError):
    """Stored bytes that do not match their manifest."""


def keep_all(versions: list[int]) -> list[int]:
    """The retention of today: nothing is ever dropped but by ``delete``."""
    return versions


class Store:
    """The versions and batches below ``root``. One writer at a time per job: the manager that holds ``epoch``.

    ``retain`` is asked after each commit which of the versions (ascending; the last is HEAD, which stays anyway) are to be kept.
    """

    def __init__(self, root: Path, epoch: Epoch, *, retain: Callable[[list[int]], list[int]] = keep_all, crash_at: CrashAt = no_crash):
        self.root = root
        self._retain = retain
        self._epoch = epoch
        self._crash_at = crash_at
        make_directory(root)
        with epoch.guard():
            self.swept = sweep(root)

    def jobs(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir() if path.is_dir())

    def head(self, job: str) -> int | None:
        """The job's latest committed version, or None before ``create``."""
        try:
            return int((self._job(job) / "HEAD").read_text())
        except FileNotFoundError:
            return None

    def versions(self, job: str) -> list[int]:
        """The committed versions that are still on disk, ascending."""
        return committed_versions(self._job(job))

    def create(self, job: str, snapshot: Snapshot, *, step: dict[str, Any] | None = None) -> None:
        """Write version 0. Raises ``StaleCommit`` when the job has one already."""
        self._publish(job, 0, snapshot, step or {})

    def commit(self, job: str, version: int, snapshot: Snapshot, step: dict[str, Any]) -> None:
        """Make ``version`` true, if HEAD is ``version`` - 1; ``step`` is kept with it, for the journal's sake.

        Raises ``StaleCommit``, ``BadSnapshot``, ``StaleEpoch``. After a crash anywhere inside, HEAD is either the old or the new version.
        """
        self._publish(job, version, snapshot, step)
        versions = self.versions(job)
        if dropped := set(versions) - {*self._retain(versions), version}:
            self.drop_versions(job, sorted(dropped))

    def _publish(self, job: str, version: int, snapshot: Snapshot, step: dict[str, Any]) -> None:
        check_complete(snapshot)
        folder = self._job(job)
        final = folder / f"v{version}"
        with self._epoch.guard():
            self._check_next(job, version)
            make_directory(folder)
            self._stage(final.with_name(final.name + STAGING), {**snapshot, "step.json": _json(step)}, version)
            if final.exists():  # renamed by a commit that never reached HEAD
                shutil.rmtree(final)
            os.rename(final.with_name(final.name + STAGING), final)
            self._crash_at("commit:renamed")
            fsync_directory(folder)
            self._crash_at("commit:directory-synced")
            replace_file(folder / "HEAD", str(version).encode(), crash_at=self._crash_at, label="commit:head")
            self._crash_at("commit:done")

    def _check_next(self, job: str, version: int) -> None:
        head = self.head(job)
        expected = 0 if head is None else head + 1
        if version != expected:
            raise StaleCommit(f"{job}: HEAD is {head}, so only version {expected} can be committed, not {version}")

    def _stage(self, staging: Path, files: dict[str, bytes], version: int) -> None:
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        manifest = {"version": version, "epoch": self._epoch.number, "files": describe(files)}
        everything = {**files, "manifest.json": _json(manifest)}
        for name, content in everything.items():
            (staging / name).write_bytes(content)
            self._crash_at(f"commit:wrote:{name}")
        for name in everything:  # after all are written: the first flush takes most of the others along
            fsync_file(staging / name)
        self._crash_at("commit:synced")
        fsync_directory(staging)
        self._crash_at("commit:staged")

    def snapshot(self, job: str, version: int, names: tuple[str, ...] = SNAPSHOT_FILES) -> Snapshot:
        """The named files of a committed version, each checked against the manifest. Raises ``UnknownVersion``, ``Corrupt``."""
        return read_verified(self._version(job, version), names)

    def adapter(self, job: str, version: int) -> Snapshot:
        """PEFT's two files of a committed version, verified."""
        return self.snapshot(job, version, ADAPTER_FILES)

    def step(self, job: str, version: int) -> dict[str, Any]:
        """The result of the step that made ``version``, as it was given to ``commit``."""
        return json.loads(self.snapshot(job, version, ("step.json",))["step.json"])

    def put_rollout(self, job: str, version: int, attempt: int, batch: bytes) -> None:
        """Keep the finished batch of an attempt, once. Raises ``StaleCommit`` when HEAD is not ``version``."""
        path = batch_path(self._job(job), version, attempt)
        with self._epoch.guard():
            if (head := self.head(job)) != version:
                raise StaleCommit(f"{job}: HEAD is {head}, so a batch of version {version} is stale")
            make_directory(path.parent.parent)
            path.parent.mkdir(exist_ok=True)
            replace_file(path, batch, crash_at=self._crash_at, label="rollout")
            # Last: the file's flush has taken the folder's name along, and a job waits for each flush.
            fsync_directory(path.parent.parent)

    def read_rollout(self, job: str, version: int, attempt: int) -> bytes:
        """The batch of an attempt. Raises ``UnknownVersion``."""
        try:
            return batch_path(self._job(job), version, attempt).read_bytes()
        except FileNotFoundError:
            raise UnknownVersion(f"{job} has no batch of version {version}, attempt {attempt}") from None

    def put_mismatch(self, job: str, version: int, attempt: int, data: bytes) -> None:
        """Keep what the trainer made of a batch's tokens, beside the batch; trained on again, the last word counts.

        Only people look at it, so no step waits for the disk: a crash may cost it.
        """
        path = mismatch_path(self._job(job), version, attempt)
        with self._epoch.guard():
            path.with_name(path.name + STAGING).write_bytes(data)
            os.replace(path.with_name(path.name + STAGING), path)

    def read_mismatch(self, job: str, version: int, attempt: int) -> bytes | None:
        """None for a batch that was not trained on, or before there was such a file."""
        try:
            return mismatch_path(self._job(job), version, attempt).read_bytes()
        except FileNotFoundError:
            return None

    def ready_attempt(self, job: str, version: int) -> int | None:
        """The latest attempt whose batch of ``version`` is complete, or None."""
        some = batch_path(self._job(job), version, 0)
        return max((int(path.stem) for path in some.parent.glob(f"*{some.suffix}")), default=None)

    def put_evaluation(self, job: str, version: int, rows: bytes) -> None:
        """Keep what an evaluation found; evaluated again, the last word counts. Raises ``UnknownVersion``."""
        with self._epoch.guard():
            if (head := self.head(job)) is None or version > head:
                raise UnknownVersion(f"{job} has no version {version}")
            path = evaluation_path(self._job(job), version)
            make_directory(path.parent)
            replace_file(path, rows, crash_at=self._crash_at, label="evaluation")

    def read_evaluation(self, job: str, version: int) -> bytes:
        """Raises ``UnknownVersion`` when that version was not evaluated."""
        try:
            return evaluation_path(self._job(job), version).read_bytes()
        except FileNotFoundError:
            raise UnknownVersion(f"version {version} of {job} was not evaluated") from None

    def drop_versions(self, job: str, versions: list[int]) -> None:
        """Remove old versions (retention). HEAD cannot be dropped: ``ValueError``."""
        head = self.head(job)
        if head in versions:
            raise ValueError(f"{job}: version {head} is HEAD")
        with self._epoch.guard():
            for version in versions:
                shutil.rmtree(self._job(job) / f"v{version}", ignore_errors=True)

    def delete_completions(self, job: str) -> None:
        """Remove the batches and evaluated rows of ``job``; its versions stay. None of them is no error."""
        with self._epoch.guard():
            for folder in COMPLETIONS:
                shutil.rmtree(self._job(job) / folder, ignore_errors=True)

    def delete(self, job: str) -> None:
        """Remove everything of ``job``. Unknown jobs are no error."""
        with self._epoch.guard():
            (self._job(job) / "HEAD").unlink(missing_ok=True)
            shutil.rmtree(self._job(job), ignore_errors=True)

    def _job(self, job: str) -> Path:
        if not _JOB_NAME.fullmatch(job):
            raise UnknownVersion(f"{job!r} cannot be a job's name")
        return self.root / job

    def _version(self, job: str, version: int) -> Path:
        head = self.head(job)
        path = self._job(job) / f"v{version}"
        if head is None or not 0 <= version <= head or not path.is_dir():
            raise UnknownVersion(f"{job} has no version {version}")
        return path


def batch_path(folder: Path, version: int, attempt: int) -> Path:
    """Where the batch that ``attempt`` sampled from ``version`` lies; ``folder``: the job's."""
    return folder / _ROLLOUTS / str(version) / f"{attempt}.msgpack"


def mismatch_path(folder: Path, version: int, attempt: int) -> Path:
    return batch_path(folder, version, attempt).with_suffix(".mismatch")


def evaluation_path(folder: Path, version: int) -> Path:
    return folder / _EVALS / f"{version}.msgpack"


def check_complete(snapshot: Snapshot) -> None:
    """Raise ``BadSnapshot`` unless exactly the files of ``SNAPSHOT_FILES`` are there."""
    if (found := set(snapshot)) != set(SNAPSHOT_FILES):
        raise BadSnapshot(f"lacks {sorted(set(SNAPSHOT_FILES) - found)}, has unknown {sorted(found - set(SNAPSHOT_FILES))}")


def describe(files: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    """The manifest's entry of each file: sha256 and size in bytes."""
    return {name: {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)} for name, content in files.items()}


def read_verified(folder: Path, names: tuple[str, ...]) -> dict[str, bytes]:
    """The named files of a version's folder. Raises ``Corrupt`` when one is missing or differs from the manifest."""
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        files = {name: (folder / name).read_bytes() for name in names}
    except (FileNotFoundError, json.JSONDecodeError) as error:
        raise Corrupt(f"{folder.parent.name}/{folder.name}: {error}") from error
    for name, found in describe(files).items():
        if found != manifest["files"].get(name):
            raise Corrupt(f"{folder.parent.name}/{folder.name}/{name} does not match its manifest")
    return files


def committed_versions(folder: Path) -> list[int]:
    """The versions of one job's folder that HEAD has reached, ascending."""
    try:
        head = int((folder / "HEAD").read_text())
    except FileNotFoundError:
        return []
    return sorted(version for version in _renamed_versions(folder) if version <= head)


def leftovers(root: Path) -> list[Path]:
    """What crashed writes left behind: staged files and folders, versions above HEAD."""
    found = list(root.glob(f"**/*{STAGING}"))
    for folder in (path for path in root.iterdir() if path.is_dir()):
        committed = set(committed_versions(folder))
        found += [folder / f"v{version}" for version in _renamed_versions(folder) if version not in committed]
    return found


def sweep(root: Path) -> list[Path]:
    """Remove and return the leftovers."""
    found = leftovers(root)
    for path in found:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return found


def _renamed_versions(folder: Path) -> list[int]:
    return [int(path.name[1:]) for path in folder.glob("v*") if path.name[1:].isdigit()]


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()
