"""Fake ports for unit tests of the manager: deterministic, without torch, vllm or Ray, and strict about the contract of ``engine.ports``.

What they do: every answer is a pure function of its request; each call is recorded; a test may let any call fail (``script.fail``) or
hold it at a gate until the test lets it go (``script.gate``). They refuse what the real ports must never be sent: a load id used twice,
adapter bytes of another version than the request's, a batch that is not on policy, a job that is rolled out twice at once.

What they do not cover: model numerics (an adapter is a chain of hashes, a completion a few digits), real time and deadlines (a gate
that is never opened waits for ever, so give the manager's own deadline something to catch), partial batches, memory, the cost of
loading adapters, KV pressure, processes that die, and answers that arrive after an abort.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from dataclasses import dataclass, field
from typing import Any

from engine.evaluation import encode as encode_evaluation
from engine.evaluation import evaluation
from engine.ports import (
    ADAPTER_FILES,
    Aborted,
    EvalRequest,
    EvalResult,
    JudgeAnswer,
    JudgeQuestion,
    PortError,
    RolloutRequest,
    RolloutResult,
    Snapshot,
    TrainRequest,
    TrainResult,
)
from engine.spec import JobSpec
from engine.trajectory import RolloutBatch, Trajectory, check_on_policy, decode, encode

Key = tuple[str, str, int | None]  # call, job, version (None: any)


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One call that reached a port. ``call``: rollout | evaluate | abort | unload | fresh | step."""

    call: str
    job: str
    version: int | None = None
    attempt: int | None = None


@dataclass(kw_only=True)
class Script:
    """What goes wrong, and when. Shared by both fakes, so that ``calls`` is one history."""

    calls: list[Call] = field(default_factory=list)
    _failures: dict[Key, list[Exception]] = field(default_factory=dict)
    _gates: dict[Key, asyncio.Event] = field(default_factory=dict)

    def fail(self, call: str, job: str, version: int | None = None, *, error: Exception | None = None, times: int = 1) -> None:
        """Let the next ``times`` such calls raise ``error`` (a ``PortError`` by default); ``version`` None means any version."""
        error = error or PortError(f"{call} of {job} fails by script")
        self._failures.setdefault((call, job, version), []).extend([error] * times)

    def gate(self, call: str, job: str, version: int | None = None) -> asyncio.Event:
        """Hold such calls until the returned event is set."""
        return self._gates.setdefault((call, job, version), asyncio.Event())

    def made(self, call: str, job: str | None = None) -> list[Call]:
        return [c for c in self.calls if c.call == call and job in (None, c.job)]

    def record(self, call: str, job: str, version: int | None = None, attempt: int | None = None) -> None:
        self.calls.append(Call(call=call, job=job, version=version, attempt=attempt))

    def gates_of(self, call: str, job: str, version: int) -> list[asyncio.Event]:
        return [self._gates[key] for key in ((call, job, version), (call, job, None)) if key in self._gates]

    def raise_if_scripted(self, call: str, job: str, version: int) -> None:
        for key in ((call, job, version), (call, job, None)):
            if self._failures.get(key):
                raise self._failures[key].pop(0)


class FakeRolloutPort:
    """A ``RolloutPort``. Rewards rise with the version; ``abort`` makes the job's held calls raise ``Aborted``."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.loaded: dict[str, set[int]] = {}
        self.running: list[str] = []
        self.most_at_once = 0
        self._load_ids: dict[int, str] = {}
        self._aborts: dict[str, asyncio.Event] = {}

    async def rollout(self, request: RolloutRequest) -> RolloutResult:
        job, version = request.adapter.job, request.adapter.version
        self.script.record("rollout", job, version, request.attempt)
        if not request.adapter.base:
            if job in self.running:
                raise AssertionError(f"{job} is rolled out twice at once")
            self._load(request)
        self.running.append(job)
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            await self._wait("rollout", job, version)
        finally:
            self.running.remove(job)
        batch = fake_batch(request)
        return RolloutResult(batch=encode(batch), summary=batch.summary)

    async def evaluate(self, request: EvalRequest) -> EvalResult:
        job, version = request.adapter.job, request.adapter.version
        self.script.record("evaluate", job, version)
        self._load(request)
        await self._wait("evaluate", job, version)
        return _evaluated(request)

    async def judge(self, question: JudgeQuestion) -> JudgeAnswer:
        """Full marks, whatever is asked."""
        await self._wait("judge", question.owner, 0)
        return JudgeAnswer(text='{"reason": "", "result": 1}', tokens=len(question.messages))

    async def prompt_tokens(self, chats: list[list[dict[str, str]]]) -> list[int]:
        """A token per character."""
        await self._wait("prompt_tokens", "", 0)
        return [sum(len(message["content"]) for message in chat) for chat in chats]

    async def abort(self, job: str) -> None:
        self.script.record("abort", job)
        if job in self._aborts:
            self._aborts.pop(job).set()

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        self.script.record("unload", job, keep_version)
        kept = self.loaded.get(job, set()) & {keep_version}
        self.loaded[job] = kept
        if not kept:
            del self.loaded[job]

    async def stats(self) -> dict[str, Any]:
        return {"decode_steps": 0, "decode_steps_with_2_adapters": 0, "kv_used": 0.0, "waiting": 0, "preempted": 0}

    def workers(self) -> list[dict[str, Any]]:
        return [{"name": "sampler", "kind": "sampler", "alive": True, "busy": len(self.running), "heard_seconds": 0.0}]

    def _load(self, request: RolloutRequest | EvalRequest) -> None:
        adapter = request.adapter
        check_snapshot(request.adapter_files, job=adapter.job, version=adapter.version, spec=request.spec)
        owner = self._load_ids.setdefault(adapter.load_id, adapter.name)
        if owner != adapter.name:
            raise AssertionError(f"load id {adapter.load_id} of {owner} is used again for {adapter.name}")
        self.loaded.setdefault(adapter.job, set()).add(adapter.version)

    async def _wait(self, call: str, job: str, version: int) -> None:
        aborted = self._aborts.setdefault(job, asyncio.Event())
        for gate in self.script.gates_of(call, job, version):
            waits = [asyncio.ensure_future(event.wait()) for event in (gate, aborted)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        await asyncio.sleep(0)  # a real port never answers within the caller's own turn of the loop
        if aborted.is_set():
            raise Aborted("aborted")
        self.script.raise_if_scripted(call, job, version)


class FakeTrainPort:
    """A ``TrainPort`` whose snapshots chain: each hashes the last one's files and the batch, so any mix-up changes all that follows."""

    def __init__(self, script: Script | None = None) -> None:
        self.script = script or Script()
        self.running: list[str] = []
        self.most_at_once = 0

    async def prepare(self, request: TrainRequest) -> None:
        self.script.record("prepare", request.job, request.version, request.attempt)
        await asyncio.sleep(0)
        self.script.raise_if_scripted("prepare", request.job, request.version)

    async def fresh(self, job: str, spec: JobSpec) -> Snapshot:
        self.script.record("fresh", job, 0)
        await asyncio.sleep(0)
        self.script.raise_if_scripted("fresh", job, 0)
        return fake_snapshot(job=job, version=0, digest=hashlib.sha256(f"{job}/{spec.seed}".encode()).hexdigest())

    async def step(self, request: TrainRequest) -> TrainResult:
        self.script.record("step", request.job, request.version, request.attempt)
        check_snapshot(request.snapshot, job=request.job, version=request.version, spec=request.spec)
        batch = decode(request.batch)
        check_on_policy(batch, job=request.job, version=request.version, attempt=request.attempt)
        self.running.append(request.job)
        self.most_at_once = max(self.most_at_once, len(self.running))
        try:
            for gate in self.script.gates_of("step", request.job, request.version):
                await gate.wait()
            await asyncio.sleep(0)
            self.script.raise_if_scripted("step", request.job, request.version)
        finally:
            self.running.remove(request.job)
        return TrainResult(snapshot=_next_snapshot(request), metrics=_metrics(request, batch), seconds=0.0)

    def workers(self) -> list[dict[str, Any]]:
        return [{"name": "trainer", "kind": "trainer", "alive": True, "busy": len(self.running), "heard_seconds": 0.0}]


def fake_snapshot(*, job: str, version: int, digest: str) -> Snapshot:
    """Files with PEFT's names whose content says whose they are."""
    tag = f"{job}@{version}:{digest}"
    return {
        "adapter_model.safetensors": f"weights {tag}".encode(),
        "adapter_config.json": json.dumps({"peft_type": "LORA", "tag": tag}).encode(),
        "optimizer.safetensors": f"optimizer {tag}".encode(),
        "trainer.json": json.dumps({"tag": tag, "step": version}).encode(),
    }


def check_snapshot(files: Snapshot, *, job: str, version: int, spec: JobSpec | None = None) -> None:
    """Raise ``AssertionError`` unless ``files`` hold the adapter of exactly (job, version); version 0 may be another's by ``spec``."""
    if version == 0 and spec is not None and spec.warm_start is not None:
        job, version = spec.warm_start.job, spec.warm_start.version
    if missing := [name for name in ADAPTER_FILES if name not in files]:
        raise AssertionError(f"snapshot of {job}@{version} lacks {', '.join(missing)}")
    found = files["adapter_model.safetensors"].decode()
    if not found.startswith(f"weights {job}@{version}:"):
        raise AssertionError(f"asked for {job}@{version}, was given {found!r}")


def fake_reward_mean(version: int) -> float:
    return round(1 - 0.7 * 0.9**version, 6)


def fake_batch(request: RolloutRequest) -> RolloutBatch:
    group = range(request.spec.rollout.group_size)
    trajectories = [_trajectory(request, row.row, sample) for row in request.rows for sample in group]
    return RolloutBatch(
        job=request.adapter.job,
        policy_version=request.adapter.version,
        attempt=request.attempt,
        group_size=len(group),
        trajectories=trajectories,
        summary=_summary(trajectories, len(group)),
    )


def _evaluated(request: EvalRequest) -> EvalResult:
    found = evaluation(request.adapter.job, request.adapter.version, [_trajectory(request, row.row, 0) for row in request.rows])
    data = {
        "version": request.adapter.version,
        "rows": len(request.rows),
        "reward_mean": sum(row.reward or 0.0 for row in found.rows) / len(found.rows),
        "invalid": 0,
        "temperature": request.spec.eval.temperature,
        "sampled_tokens": 4 * len(request.rows),
        "seconds": 0.0,
    }
    return EvalResult(rows=encode_evaluation(found), data=data)


def _trajectory(request: RolloutRequest | EvalRequest, row: int, sample: int) -> Trajectory:
    version = request.adapter.version
    seed = getattr(request, "seed", request.spec.seed)
    chance = random.Random(f"{seed}/{version}/{row}/{sample}")
    completion = [chance.randrange(10) for _ in range(4)]
    reward = float(chance.random() < fake_reward_mean(version))
    return Trajectory(
        job=request.adapter.job,
        policy_version=version,
        attempt=getattr(request, "attempt", 0),
        load_id=request.adapter.load_id,
        row=row,
        sample=sample,
        seed=chance.randrange(2**31),
        prompt_ids=[1, row % 100],
        completion_ids=completion,
        logprobs=[-1.0] * len(completion),
        text="".join(map(str, completion)),
        finish_reason="stop",
        reward=reward,
        components={request.spec.grader.name: reward},
    )


def _summary(trajectories: list[Trajectory], group_size: int) -> dict[str, Any]:
    rewards = [t.reward or 0.0 for t in trajectories]
    groups = [rewards[i : i + group_size] for i in range(0, len(rewards), group_size)]
    mean = sum(rewards) / len(rewards)
    lengths = [len(t.completion_ids) for t in trajectories]
    return {
        "completions": len(trajectories),
        "reward_mean": mean,
        "reward_std": (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5,
        "reward_min": min(rewards),
        "reward_max": max(rewards),
        "invalid": 0,
        "truncated": 0,
        "groups": len(groups),
        "groups_all_right": sum(min(g) == 1.0 for g in groups),
        "groups_all_wrong": sum(max(g) == 0.0 for g in groups),
        "length_mean": sum(lengths) / len(lengths),
        "length_max": max(lengths),
        "prompt_tokens": sum(len(t.prompt_ids) for t in trajectories),
        "sampled_tokens": sum(lengths),
        "cached_tokens": 0,
        "rollout_seconds": 0.0,
        "env_seconds": 0.0,
        "reward_seconds": 0.0,
    }


def _next_snapshot(request: TrainRequest) -> Snapshot:
    digest = hashlib.sha256()
    for name in sorted(request.snapshot):
        digest.update(request.snapshot[name])
    digest.update(request.batch)
    return fake_snapshot(job=request.job, version=request.version + 1, digest=digest.hexdigest())


def _metrics(request: TrainRequest, batch: RolloutBatch) -> dict[str, Any]:
    loads = sorted({t.load_id for t in batch.trajectories})
    return {
        "loss": 0.1,
        "grad_norm": 1.0,
        "entropy": 2.0,
        "clip_share": 0.0,
        "mismatch_kl": 0.0,
        "learning_rate": request.spec.train.learning_rate,
        "skipped": None,
        "tokens": {"trained": sum(len(t.completion_ids) for t in batch.trajectories)},
        "certificate": {
            "completions": len(batch.trajectories),
            "on_policy": True,
            "version": request.version,
            "load_id": loads[0],
            "mismatch_kl": 0.0,
            "max_ratio": 1.0,
        },
    }
