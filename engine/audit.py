"""Do the journal and the disk keep the promises? For fault tests, and for operators who want to know.

Checks the invariants that one engine's directory can show: I1 (each step committed once, versions without gap), I2 (every trained
trajectory was sampled from HEAD and entered exactly one committed step), I3 (committed versions are whole, and only they are served),
I8 (no leftovers), I10 (sequence numbers without gap). Look at a quiet engine: a commit under way looks like a leftover.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from engine.events import Event
from engine.journal import read_all
from engine.store import COMPLETIONS, SNAPSHOT_FILES, Corrupt, batch_path, committed_versions, leftovers, read_verified
from engine.trajectory import StaleBatch, check_on_policy, decode


def audit(root: Path) -> list[str]:
    """The violations found below the engine's directory ``root``, in words; none is what everybody wants to see."""
    by_job: dict[str, list[Event]] = defaultdict(list)
    problems: list[str] = []
    for position, event in enumerate(read_all(root / "journal"), start=1):
        if event.offset != position:
            problems.append(f"I10: event {position} of the journal has offset {event.offset}")
        by_job[event.job].append(event)
    for job, events in by_job.items():
        if job:
            problems += [f"{job}: {problem}" for problem in _job_problems(root / "jobs" / job, events)]
    if (root / "jobs").is_dir():
        problems += [f"I8: {path.relative_to(root)} is left over" for path in leftovers(root / "jobs")]
        problems += [f"I8: {path.name} has no history" for path in (root / "jobs").iterdir() if path.is_dir() and path.name not in by_job]
    return problems


def _job_problems(folder: Path, events: list[Event]) -> Iterator[str]:
    yield from _numbering(events)
    yield from _story(events)
    if any(event.kind == "deleted" for event in events):
        if folder.exists():
            yield "I8: deleted, but still on disk"
        return
    steps = [event for event in events if event.kind == "step"]
    yield from _versions(folder, len(steps), began=any(event.kind == "rollout_started" for event in events))
    if any(event.kind == "completions_deleted" for event in events):
        if any((folder / name).exists() for name in COMPLETIONS):
            yield "I8: completions deleted, but still on disk"
        return
    for step in steps:
        yield from _batch(folder, step)


def _numbering(events: list[Event]) -> Iterator[str]:
    if (seqs := [event.seq for event in events]) != list(range(1, len(seqs) + 1)):
        yield f"I10: sequence numbers {seqs}"


def _story(events: list[Event]) -> Iterator[str]:
    """Follow the events: what each says must fit what was committed until then."""
    version, attempt, ended = 0, 0, False
    for event in events:
        data = event.data
        if ended and event.kind not in ("deleted", "version_deleted", "completions_deleted"):
            yield f"I1: {event.kind} after its end"
        if event.kind == "step":
            if (data["trained_from"], data["version"]) != (version, version + 1):
                yield f"I1: committed {data['version']} from {data['trained_from']} at version {version}"
            if data["attempt"] != attempt:
                yield f"I2: step {data['version']} trained on attempt {data['attempt']}, the latest was {attempt}"
            version, attempt = data["version"], 0
        elif event.kind == "rollout_started":
            if (data["version"], data["attempt"]) != (version, attempt + 1):
                yield f"I3: rollout of version {data['version']}, attempt {data['attempt']} at version {version}, attempt {attempt}"
            attempt = data["attempt"]
        elif event.kind == "eval_started" and data["version"] > version:
            yield f"I3: evaluation of version {data['version']} at version {version}"
        elif event.kind == "ended":
            ended = True
            if data["state"] == "succeeded" and version != events[0].data["submission"]["spec"]["train"]["steps"]:
                yield f"I1: succeeded at version {version}"


def _versions(folder: Path, committed: int, *, began: bool) -> Iterator[str]:
    found = committed_versions(folder)
    if not found:
        if committed or began:
            yield "I3: no version on disk"
        return
    if found[-1] != committed:
        yield f"I1: HEAD is {found[-1]}, the journal has {committed} steps"
    for version in found:
        try:
            read_verified(folder / f"v{version}", (*SNAPSHOT_FILES, "step.json"))
        except Corrupt as error:
            yield f"I3: {error}"


def _batch(folder: Path, step: Event) -> Iterator[str]:
    version, attempt = step.data["trained_from"], step.data["attempt"]
    try:
        batch = decode(batch_path(folder, version, attempt).read_bytes())
        check_on_policy(batch, job=step.job, version=version, attempt=attempt)
    except FileNotFoundError:
        yield f"I2: the batch of version {version}, attempt {attempt} is gone"
        return
    except StaleBatch as error:
        yield f"I2: {error}"
        return
    certificate = step.data["certificate"]
    if not certificate["on_policy"] == certificate["completions"] == len(batch.trajectories):
        yield f"I2: step {step.data['version']} certifies {certificate['on_policy']} of {certificate['completions']}"


def main(root: Path) -> int:
    """Print the violations below the engine's directory; the exit code is 1 when there are any."""
    found = audit(root)
    print("\n".join(found) or "every promise is kept")
    return int(bool(found))
