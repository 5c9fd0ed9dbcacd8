"""One rollout replica: episodes of many jobs at once over one sampler. Implements ``ports.RolloutPort``."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from engine.blobs import BlobStore
from engine.evaluation import encode as encode_evaluation
from engine.evaluation import evaluation
from engine.grader_spec import BASE_JUDGE
from engine.ports import (
    Aborted,
    AdapterRef,
    EvalRequest,
    EvalResult,
    JudgeAnswer,
    JudgeQuestion,
    PortError,
    RolloutRequest,
    RolloutResult,
    Snapshot,
)
from engine.rewards.graders import GradingFailed
from engine.rewards.judge import listed
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Sandbox, SandboxSettings
from engine.rollout.chat import ChatDesk
from engine.rollout.envs import open_tools
from engine.rollout.episodes import EpisodePlan, EpisodeTools, Played, play
from engine.rollout.judge import BaseJudge
from engine.rollout.late import CountedGrading, added
from engine.rollout.sampling import EVALUATION_PRIORITY, PROBE_PRIORITY, ROLLOUT_PRIORITY, Grading, Sampler, Tokens
from engine.rollout.summary import eval_data, rollout_summary
from engine.rollout.tools_python import Programs
from engine.rollout.tools_search import Searches
from engine.sealed import Sealer
from engine.trajectory import RolloutBatch, encode

T = TypeVar("T")

# Slots of vLLM's adapter table beside the jobs': one for evaluations, one for chat.
EXTRA_ADAPTERS = 2
# The share of the KV cache that all chats together may take.
CHAT_SHARE = 1 / 8


# Sequences in one batch of the sampler: room for several jobs' steps beside one another, within this many bytes of logits.
LOGITS_BYTES = 64 * 2**20
FEWEST_SEQUENCES, MOST_SEQUENCES = 256, 1024


def _grading(settings: Any, sandbox: Sandbox, base: BaseJudge) -> GraderPool:
    """Starts nothing: the sandbox and the grading processes come up with the first job that needs them."""
    judges = {**listed(settings.judges, settings.judge_keys.get_secret_value()), BASE_JUDGE: base}
    return GraderPool(sandbox=sandbox, judges=judges, sealer=Sealer(bearer=settings.secret(), earlier=settings.earlier_secrets()))


def sequences_at_once(vocabulary: int) -> int:
    """How many completions one batch holds; a job's step that fills it makes all others wait for its end."""
    return min(MOST_SEQUENCES, max(FEWEST_SEQUENCES, LOGITS_BYTES // (4 * vocabulary)))


class AdapterSampler(Sampler, Protocol):
    """What the worker asks of ``vllm_worker.VllmSampler``."""

    died: asyncio.Event

    async def load(self, ref: AdapterRef, files: Snapshot) -> AdapterRef: ...
    async def unload(self, job: str, *, keep_version: int | None = None) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    async def close(self) -> None: ...


@asynccontextmanager
async def closed_unless_built(sampler: Any) -> AsyncIterator[None]:
    """Close ``sampler`` when what is built on it fails: its engine core is a process, and would stay."""
    try:
        yield
    except BaseException:
        await sampler.close()
        raise


class RolloutWorker:
    """Raises ``PortError`` only. ``died`` is set once the sampler is beyond help: end the process then."""

    def __init__(
        self,
        *,
        sampler: AdapterSampler,
        tokens: Tokens,
        grading: Grading,
        searches: Searches | None = None,
        programs: Programs | None = None,
        judge: BaseJudge | None = None,
        chats: ChatDesk | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._sampler, self._grading, self._searches = sampler, grading, searches or Searches.bundled()
        self._programs, self._judge, self._chats = programs, judge, chats
        self._tools = EpisodeTools(sampler=sampler, tokens=tokens, grading=grading, clock=clock)
        self._clock = clock
        self._running: dict[str, set[asyncio.Task[Any]]] = {}
        self._gradings: dict[str, list[CountedGrading]] = {}  # of the rollouts under way, by job
        self._aborted: set[asyncio.Task[Any]] = set()
        self.died = sampler.died

    @classmethod
    async def start(cls, settings: Any) -> RolloutWorker:
        """A worker for ``engine.settings.EngineSettings``; starts vLLM, which takes many seconds. The environment must hold
        the device profile's ``vllm_env``. Grading processes start with the first job that needs them.
        """
        from engine.models.registry import kv_bytes_per_token, resolve
        from engine.rollout.tokens import ModelTokens
        from engine.rollout.vllm_worker import SamplerConfig, VllmSampler

        files = await asyncio.to_thread(resolve, settings.model, settings.models_dir)
        model = json.loads((files.path / "config.json").read_text())
        own_context = int(model["max_position_embeddings"])
        tokens = await asyncio.to_thread(ModelTokens.load, files.path)
        config = SamplerConfig(
            model=files.path,
            layers=int(model["num_hidden_layers"]),
            vocabulary=int(model["vocab_size"]),
            profile=settings.device_profile(),
            folder=_own_folder(settings.runtime_dir / "adapters"),
            adapters=settings.job_slots + EXTRA_ADAPTERS,
            max_rank=settings.max_rank,
            max_sequences=sequences_at_once(int(model["vocab_size"])),
            max_context_tokens=min(own_context, settings.max_context_tokens or own_context),
            call_seconds=settings.call_deadline_seconds,
        )
        searches = Searches.of(
            blob_path=BlobStore(settings.blobs_dir).path, folder=settings.runtime_dir / "search", endpoints=settings.search_endpoints
        )
        sandbox = Sandbox(SandboxSettings(tier=settings.reward_sandbox, max_workers=settings.reward_workers))
        room = int(CHAT_SHARE * settings.kv_bytes / settings.rollout_replicas / kv_bytes_per_token(model, config.profile.dtype))
        sampler = await VllmSampler.start(config)
        async with closed_unless_built(sampler):
            parts = {"sampler": sampler, "tokens": tokens, "context_tokens": config.max_context_tokens}
            outside = BaseJudge(**parts, priority=PROBE_PRIORITY, seconds=settings.call_deadline_seconds)
            grading = _grading(settings, sandbox, BaseJudge(**parts))
            chats = ChatDesk(sampler, tokens, context_tokens=config.max_context_tokens, room_tokens=room)
            return cls(sampler=sampler, tokens=tokens, grading=grading, searches=searches, programs=sandbox, judge=outside, chats=chats)

    async def close(self) -> None:
        for job in list(self._running):
            await self.abort(job)
        if self._chats is not None:
            await self._chats.close_all()
        await self._sampler.close()
        await self._searches.close()
        if isinstance(self._grading, GraderPool):
            await self._grading.close()

    async def rollout(self, request: RolloutRequest) -> RolloutResult:
        return await self._guarded(request.adapter.job, request.deadline_seconds, lambda: self._rollout(request))

    async def evaluate(self, request: EvalRequest) -> EvalResult:
        return await self._guarded(request.adapter.job, request.deadline_seconds, lambda: self._evaluate(request))

    async def judge(self, question: JudgeQuestion) -> JudgeAnswer:
        if self._judge is None:
            raise PortError("this sampler judges nothing")
        asked = {"params": question.params, "schema": question.schema, "owner": question.owner}
        try:
            reply = await self._judge.complete(question.messages, **asked)
        except GradingFailed as failed:
            raise PortError(failed.reason, attribution="platform" if failed.retry else "user") from failed
        return JudgeAnswer(text=reply.text, tokens=reply.tokens)

    async def prompt_tokens(self, chats: list[list[dict[str, str]]]) -> list[int]:
        return await asyncio.to_thread(lambda: [len(self._tools.tokens.render(chat)) for chat in chats])

    async def abort(self, job: str) -> None:
        """End everything that runs for ``job``; its calls raise ``Aborted``. Returns when nothing of it generates any more."""
        tasks = list(self._running.get(job, ()))
        self._aborted.update(tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        await self._sampler.unload(job, keep_version=keep_version)
        if keep_version is None and self._chats is not None:
            await self._chats.drop(job)

    async def chat_open(self, chat: str, order: dict[str, Any], version: int | None, files: Snapshot | None) -> bool:
        """See ``ChatDesk.open``; raises ``PortError``."""
        return await self._desk().open(chat, order, version, files)

    async def chat_read(self, chat: str) -> dict[str, Any]:
        return await self._desk().read(chat)

    async def chat_close(self, chat: str) -> None:
        await self._desk().close(chat)

    def _desk(self) -> ChatDesk:
        if self._chats is None:
            raise PortError("this sampler holds no chats")
        return self._chats

    async def stats(self) -> dict[str, Any]:
        """The sampler's counters, and under ``gradings`` how those of each job's rollout go (``late.CountedGrading.told``)."""
        chatting = self._chats.open_completions() if self._chats is not None else 0
        gradings = {job: added(one.told() for one in under_way) for job, under_way in self._gradings.items()}
        return {**self._sampler.stats(), "jobs_sampling": len(self._running), "chat_completions": chatting, "gradings": gradings}

    async def _rollout(self, request: RolloutRequest) -> RolloutResult:
        spec, started_at, ref = request.spec, self._clock(), request.adapter
        adapter = ref if ref.base else await self._sampler.load(ref, request.adapter_files)
        plan = EpisodePlan(
            adapter=adapter,
            attempt=request.attempt,
            grader=spec.grader,
            samples=spec.rollout.group_size,
            seed=request.seed,
            max_prompt_tokens=spec.rollout.max_prompt_tokens,
            max_new_tokens=spec.rollout.max_new_tokens,
            temperature=spec.rollout.temperature,
            priority=PROBE_PRIORITY if ref.base else ROLLOUT_PRIORITY,
            ignore_eos=spec.rollout.ignore_eos,
            toolbox=await open_tools(spec.environment, self._searches, self._programs),
            environment=spec.environment,
        )
        with self._counted(ref.job, completions=len(request.rows) * plan.samples) as grading:
            played = await play(plan, request.rows, replace(self._tools, grading=grading))
        summary = rollout_summary(played, group_size=plan.samples, started_at=started_at).model_dump()
        return RolloutResult(batch=await asyncio.to_thread(_encoded, plan, played, summary), summary=summary)

    @contextmanager
    def _counted(self, job: str, *, completions: int) -> Iterator[CountedGrading]:
        counted = CountedGrading(self._grading, completions=completions)
        self._gradings.setdefault(job, []).append(counted)
        try:
            yield counted
        finally:
            self._gradings[job].remove(counted)
            if not self._gradings[job]:
                del self._gradings[job]

    async def _evaluate(self, request: EvalRequest) -> EvalResult:
        spec, started_at = request.spec, self._clock()
        adapter = await self._sampler.load(request.adapter, request.adapter_files)
        plan = EpisodePlan(
            adapter=adapter,
            attempt=0,
            grader=spec.grader,
            samples=1,
            seed=spec.seed,
            max_prompt_tokens=spec.rollout.max_prompt_tokens,
            max_new_tokens=spec.rollout.max_new_tokens,
            temperature=spec.eval.temperature,
            priority=EVALUATION_PRIORITY,
            environment=spec.environment,
            toolbox=await open_tools(spec.environment, self._searches, self._programs),
        )
        played = await play(plan, request.rows[: spec.eval.max_rows], self._tools)
        data = eval_data(played, version=adapter.version, temperature=plan.temperature, seconds=self._clock() - started_at)
        rows = evaluation(adapter.job, adapter.version, (p.trajectory for p in played))
        return EvalResult(rows=await asyncio.to_thread(encode_evaluation, rows), data=data.model_dump())

    async def _guarded(self, job: str, deadline_seconds: float, work: Callable[[], Awaitable[T]]) -> T:
        """Run ``work`` so that ``abort(job)`` reaches it, and no longer than ``deadline_seconds``."""
        task = asyncio.ensure_future(work())
        running = self._running.setdefault(job, set())
        running.add(task)
        try:
            async with asyncio.timeout(deadline_seconds):
                return await task
        except TimeoutError as error:
            raise PortError(f"sampling for {job} took longer than {deadline_seconds:g} s") from error
        except asyncio.CancelledError:
            if task in self._aborted:
                raise Aborted(f"sampling for {job} was aborted") from None
            raise
        finally:
            task.cancel()
            self._aborted.discard(task)
            running.discard(task)
            if not running and self._running.get(job) is running:
                del self._running[job]


def _encoded(plan: EpisodePlan, played: list[Played], summary: dict[str, Any]) -> bytes:
    batch = RolloutBatch(
        job=plan.adapter.job,
        policy_version=plan.adapter.version,
        attempt=plan.attempt,
        group_size=plan.samples,
        trajectories=[p.trajectory for p in played],
        summary=summary,
    )
    return encode(batch)


def _own_folder(parent: Path) -> Path:
    """A folder named after this process; those of dead processes are removed."""
    parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = parent / str(os.getpid())
    for old in parent.iterdir():
        if old == own or not Path("/proc", old.name).exists():
            shutil.rmtree(old, ignore_errors=True)
    own.mkdir(mode=0o700)
    return own
