"""A sampler, a tokenizer and a grader without vLLM: characters are tokens, and a completion is what a script says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from engine.ports import AdapterRef, EvalRequest, RolloutRequest, Row
from engine.rewards.graders import GradeResult, grade
from engine.rollout.sampling import Sampled, SampleParams
from engine.spec import BlobRef, DatasetRef, Grader, JobSpec, NumericGrader, RolloutSpec

FILES = {"adapter_model.safetensors": b"", "adapter_config.json": b"{}"}


class FakeTokens:
    def render(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(c) for m in messages for c in m["content"]]

    def decode(self, ids: list[int]) -> str:
        return "".join(map(chr, ids))

    def observe(self, text: str, *, after: list[int], most: int, frame: tuple[str, str] = ("", "")) -> list[int]:
        return [ord(c) for c in f"{frame[0] or '['}{text}{frame[1] or ']'}"][:most]


class FakeSampler:
    """Answers with ``says(prompt, params)``; ``hold`` keeps every completion until it is set."""

    def __init__(self, says: Callable[[str, SampleParams], str] = lambda prompt, params: "42"):
        self.died = asyncio.Event()
        self.says = says
        self.hold: asyncio.Event | None = None
        self.asked: list[tuple[AdapterRef, str, SampleParams]] = []
        self.active = 0
        self.refs: list[AdapterRef] = []
        self.logprob_count: int | None = None

    async def load(self, ref: AdapterRef, files: Any) -> AdapterRef:
        same = [r for r in self.refs if (r.tenant, r.job, r.version) == (ref.tenant, ref.job, ref.version)]
        if not same:
            self.refs.append(ref)
        return same[0] if same else ref

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        self.refs = [r for r in self.refs if r.job != job or r.version == keep_version]

    async def sample(self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams) -> Sampled:
        prompt = "".join(map(chr, prompt_ids))
        self.asked.append((adapter, prompt, params))
        self.active += 1
        try:
            await (self.hold.wait() if self.hold else asyncio.sleep(0))
        finally:
            self.active -= 1
        text = self.says(prompt, params)
        ids = [ord(c) for c in text]
        count = len(ids) if self.logprob_count is None else self.logprob_count
        reason = "length" if len(ids) >= params.max_new_tokens else "stop"
        return Sampled(completion_ids=ids, logprobs=[-0.5] * count, finish_reason=reason, cached_tokens=1)

    def stats(self) -> dict[str, Any]:
        return {"running": self.active}

    async def close(self) -> None:
        self.died.set()


class FakeGrading:
    """Grades in place; ``hold`` keeps the grades of texts it names."""

    def __init__(self) -> None:
        self.hold: dict[str, asyncio.Event] = {}
        self.graded: list[str] = []
        self.cases: list[dict[str, Any]] = []

    async def grade(self, grader: Grader, text: str, item: Mapping[str, Any], **case: Any) -> GradeResult:
        if text in self.hold:
            await self.hold[text].wait()
        self.graded.append(text)
        self.cases.append(case)
        return grade(grader, text, item)


class FakeClock:
    """Moves by ``step`` seconds at each look."""

    def __init__(self, step: float = 1.0):
        self.now, self.step = 0.0, step

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def row(number: int, prompt: str = "6*7=", answer: str = "42") -> Row:
    return Row(row=number, messages=[{"role": "user", "content": prompt}], item={"answer": answer})


def job_spec(**rollout: Any) -> JobSpec:
    blob = BlobRef(sha256="0" * 64, bytes=1)
    sizes = {"prompts_per_step": 2, "group_size": 2, "max_prompt_tokens": 16, "max_new_tokens": 8} | rollout
    return JobSpec(
        base_model="tiny-math",
        dataset=DatasetRef(version="ds_1", train=blob, train_rows=100),
        grader=NumericGrader(type="numeric", name="right"),
        rollout=RolloutSpec(**sizes),
    )


def rollout_request(job: str = "a", *, version: int = 3, attempt: int = 1, rows: list[Row] | None = None, **changes: Any) -> RolloutRequest:
    deadline = changes.pop("deadline_seconds", 30.0)
    load_id = changes.pop("load_id", 17)
    return RolloutRequest(
        adapter=AdapterRef(tenant="alice", job=job, version=version, load_id=load_id),
        attempt=attempt,
        spec=job_spec(**changes),
        rows=rows or [row(5), row(2)],
        seed=9,
        adapter_files=FILES,
        deadline_seconds=deadline,
    )


def eval_request(job: str = "a", *, rows: list[Row], version: int = 3) -> EvalRequest:
    adapter = AdapterRef(tenant="alice", job=job, version=version, load_id=18)
    return EvalRequest(adapter=adapter, spec=job_spec(), rows=rows, adapter_files=FILES, deadline_seconds=30.0)
