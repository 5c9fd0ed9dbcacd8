"""What a run asked of the sampler and of the trainer, read back from its batches: the same work, to be done again without a schedule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from engine.bench.loads import BenchJob
from engine.bench.run import Run
from engine.environment_spec import StandIn
from engine.ports import ADAPTER_FILES, Snapshot, TrainRequest
from engine.rollout.envs import wait_seconds
from engine.rollout.sampling import completion_seed
from engine.spec import JobSpec, parse_job
from engine.store import SNAPSHOT_FILES, batch_path, read_verified
from engine.trajectory import RolloutBatch, Trajectory, decode

TRAIN_DEADLINE_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnAsked:
    """One request of the sampler: ``prompt_ids`` is all that was said before, ``tool_seconds`` the wait that followed."""

    prompt_ids: list[int] = field(repr=False)
    new_tokens: int
    tool_seconds: float = 0.0


EpisodeAsked = list[TurnAsked]


@dataclass(frozen=True, kw_only=True)
class JobAsked:
    """``steps``: the episodes of each step. ``adapter``: one version of the job's; which one changes no speed.

    ``trainings``: the requests of some of its steps.
    """

    job: str
    spec: JobSpec
    adapter: Snapshot = field(repr=False)
    steps: list[list[EpisodeAsked]] = field(repr=False)
    trainings: list[TrainRequest] = field(repr=False)

    @property
    def tools(self) -> list[float]:
        """Of each step, the tool time of its slowest episode, in seconds."""
        return [max(sum(turn.tool_seconds for turn in episode) for episode in step) for step in self.steps]

    @property
    def requests(self) -> int:
        return sum(len(episode) for step in self.steps for episode in step)


def asked(run: Run, jobs: Iterable[BenchJob], jobs_dir: Path, *, trainings: int) -> list[JobAsked]:
    """Of every job of ``run``. ``jobs_dir``: where the engine's store is; ``trainings``: how many steps' training to take along per job."""
    return [_job(view.job, view.committed, parse_job(job.spec), jobs_dir, trainings) for view, job in zip(run.jobs, jobs, strict=True)]


def _job(name: str, committed: list[dict], spec: JobSpec, jobs_dir: Path, trainings: int) -> JobAsked:
    home = jobs_dir / name
    batches = [(data["trained_from"], data["attempt"], _batch(home, data)) for data in committed]
    return JobAsked(
        job=name,
        spec=spec,
        adapter=read_verified(home / f"v{committed[-1]['version']}", ADAPTER_FILES),
        steps=[episodes(decode(batch), spec) for _, _, batch in batches],
        trainings=[_training(name, home, spec, *batches[index]) for index in spread(len(batches), trainings)],
    )


def _batch(home: Path, data: dict) -> bytes:
    return batch_path(home, data["trained_from"], data["attempt"]).read_bytes()


def _training(name: str, home: Path, spec: JobSpec, version: int, attempt: int, batch: bytes) -> TrainRequest:
    return TrainRequest(
        job=name,
        version=version,
        attempt=attempt,
        spec=spec,
        snapshot=read_verified(home / f"v{version}", SNAPSHOT_FILES),
        batch=batch,
        deadline_seconds=TRAIN_DEADLINE_SECONDS,
    )


def episodes(batch: RolloutBatch, spec: JobSpec) -> list[EpisodeAsked]:
    """What each completion of ``batch`` asked, turn by turn."""
    return [_episode(trajectory, spec) for trajectory in batch.trajectories]


def _episode(trajectory: Trajectory, spec: JobSpec) -> EpisodeAsked:
    said, turns = list(trajectory.prompt_ids), []
    sizes = [(turn.sampled, turn.added) for turn in trajectory.turns] or [(len(trajectory.completion_ids), 0)]
    rest = trajectory.completion_ids
    for number, (sampled, added) in enumerate(sizes):
        turns.append(TurnAsked(prompt_ids=list(said), new_tokens=sampled, tool_seconds=_tool_seconds(trajectory, spec, number)))
        said, rest = said + rest[: sampled + added], rest[sampled + added :]
    return turns


def _tool_seconds(trajectory: Trajectory, spec: JobSpec, turn: int) -> float:
    """The stand-in's waits are drawn from the turn's own seed, so they can be drawn again."""
    if not isinstance(spec.environment, StandIn) or turn >= spec.environment.tool_turns:
        return 0.0
    seed = completion_seed(spec.seed, trajectory.policy_version, trajectory.row, trajectory.sample, turn)
    return wait_seconds(spec.environment.latency, seed)


def spread(count: int, most: int) -> list[int]:
    """At most ``most`` of the indices 0 … ``count`` - 1, evenly apart, without the first where there are others: it warms up."""
    if count <= 1 or most < 1:
        return list(range(min(count, most)))
    return sorted({1 + round(index * (count - 2) / max(1, min(most, count - 1) - 1)) for index in range(min(most, count - 1))})
