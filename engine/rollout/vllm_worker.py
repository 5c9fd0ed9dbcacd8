"""The only door to vLLM: one ``AsyncLLM`` with many LoRA adapters, made safe to share.

    load(ref, files) ── files to a private folder ── add_lora(fresh id, job@version) ──▶ served, while it is probed
    sample(ref, prompt) ── token ids in; token ids + log-probabilities out once the probe is passed; salted with tenant, job, version, load
    unload(job) ── removed once the last request under it has ended

Each load has an id of its own that is never used again: vLLM was seen serving cached tokens of OLD weights under a reused one.
After each load a probe compares a few log-probabilities with the base model's: an adapter whose names vLLM ignores would serve the base.
Its first requests are in the probe's batch, not behind it; nothing that was sampled is given out before the probe is passed.

Importing this module imports vLLM, so the device profile's ``vllm_env`` must stand in the environment before that.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import shutil
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from vllm import SamplingParams
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.lora.request import LoRARequest
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.exceptions import EngineDeadError

from engine.device import DeviceProfile
from engine.ports import AdapterRef, LoadRefused, PortError, SamplerDied, Snapshot
from engine.rollout import vllm_adapters as adapters
from engine.rollout import vllm_schemas
from engine.rollout.counters import Counters
from engine.rollout.sampling import ROLLOUT_PRIORITY, Piece, Sampled, SampleParams
from engine.spec import LORA_TARGETS

log = logging.getLogger(__name__)

PROBE_TOKENS = 12
PROBE_LOGPROBS = 8
# Larger than batch-dependent rounding; a smaller effect is told from none by an amplified copy of the adapter.
PROBE_TOLERANCE = {"float32": 2e-5, "bfloat16": 5e-2, "float16": 5e-2}


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplerConfig:
    """``adapters``: how many may be in one batch (job slots, one for evaluation, one for chat). ``folder``: private, for adapter files.

    ``call_seconds`` bounds every call to the engine that is not generation; overstaying it means that the engine is stuck.
    """

    model: Path
    layers: int
    vocabulary: int
    profile: DeviceProfile
    folder: Path
    adapters: int
    max_rank: int
    max_context_tokens: int
    max_sequences: int = 256
    call_seconds: float = 30.0
    extra_engine_args: dict[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True, eq=False)
class _Loaded:
    ref: AdapterRef
    request: LoRARequest
    folder: Path
    users: int = 0
    unwanted: bool = False
    proof: asyncio.Task[None] | None = None

    async def proven(self) -> None:
        """Returns once the probe is passed. Raises what it found."""
        if self.proof is not None:
            await asyncio.shield(self.proof)

    @property
    def salt(self) -> str:
        return f"{self.ref.tenant}/{self.ref.name}#{self.ref.load_id}"


class VllmSampler:
    """Implements ``sampling.Sampler``. Every method may raise ``SamplerDied``, after which ``died`` is set and nothing works any more."""

    def __init__(self, config: SamplerConfig, engine: AsyncLLM, counters: Counters):
        self._config, self._engine, self._counters = config, engine, counters
        self._loaded: dict[tuple[str, str, int], _Loaded] = {}
        self._loading: dict[tuple[str, str, int], asyncio.Task[_Loaded]] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._lora_ids = itertools.count(1)
        self._request_ids = itertools.count(1)
        self._tolerance = PROBE_TOLERANCE[config.profile.dtype]
        self._base_probe: dict[int, float] = {}
        self._proven_names: set[tuple[str, ...]] = set()
        self._holds_schemas: bool | None = None
        self.died = asyncio.Event()

    @classmethod
    async def start(cls, config: SamplerConfig) -> VllmSampler:
        """Start vLLM (many seconds) and sample the base model's probe."""
        config.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        counters_path = config.folder / f"counters-{os.getpid()}"
        counters_path.unlink(missing_ok=True)
        counters = Counters.create(counters_path)
        arguments = AsyncEngineArgs(**engine_args(config, counters_path))
        sampler = cls(config, await asyncio.to_thread(AsyncLLM.from_engine_args, arguments), counters)
        sampler._base_probe = await sampler._probe(None)
        return sampler

    async def close(self) -> None:
        """Stop the engine and remove the adapter files."""
        self.died.set()
        for ending in (*self._leaving, *(loaded.proof for loaded in self._loaded.values() if loaded.proof is not None)):
            ending.cancel()
        if self._engine.output_handler is not None:  # it would report the engine's end as a failure
            self._engine.output_handler.cancel()
        await asyncio.to_thread(self._engine.shutdown)
        # Its destructor fails noisily when it runs at the interpreter's end.
        self._engine = None
        self._counters.close()
        shutil.rmtree(self._config.folder, ignore_errors=True)

    # Adapters

    async def load(self, ref: AdapterRef, files: Snapshot) -> AdapterRef:
        """Have (tenant, job, version) served; returns the ref it is loaded under, which is an earlier one if it was there already.

        Raises ``LoadRefused`` when the adapter does not fit. One without effect is refused to whoever samples with it, and then removed.
        """
        key = (ref.tenant, ref.job, ref.version)
        if (there := self._loaded.get(key)) is not None:
            if there.proof is not None and there.proof.done():
                there.proof.result()  # raises what it found
            there.unwanted = False
            return there.ref
        if key not in self._loading:
            task = asyncio.create_task(self._load(ref, files))
            self._loading[key] = task
            task.add_done_callback(lambda done: self._finish_load(key, done))
        return (await asyncio.shield(self._loading[key])).ref

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        """Drop the job's adapters but ``keep_version``; those in use go when their last request has ended.

        vLLM removes them between two of its iterations, before whatever it is asked to load next. Nobody waits for that: a job's next
        rollout would, after each step.
        """
        loading = [task for (_, of_job, version), task in self._loading.items() if of_job == job and version != keep_version]
        await asyncio.gather(*loading, return_exceptions=True)
        for loaded in list(self._loaded.values()):
            if loaded.ref.job == job and loaded.ref.version != keep_version:
                loaded.unwanted = True
                self._drop_if_idle(loaded)

    def loaded(self) -> list[AdapterRef]:
        return [loaded.ref for loaded in self._loaded.values()]

    def _finish_load(self, key: tuple[str, str, int], done: asyncio.Task[_Loaded]) -> None:
        del self._loading[key]
        if not done.cancelled() and done.exception() is None:
            self._loaded[key] = done.result()
            self._drop_if_idle(done.result())  # its proof may have failed already

    async def _load(self, ref: AdapterRef, files: Snapshot) -> _Loaded:
        facts = adapters.inspect(files, layers=self._config.layers, max_rank=self._config.max_rank)
        loaded = await self._add(ref, files)
        if not facts.does_nothing:
            loaded.users += 1  # so that it is not removed under its own probe
            loaded.proof = asyncio.create_task(self._prove(loaded, files, facts), name=f"prove {ref.name}")
        return loaded

    async def _prove(self, loaded: _Loaded, files: Snapshot, facts: adapters.AdapterFacts) -> None:
        """Ends the use that ``_load`` began."""
        try:
            if await self._equals_base(loaded):
                await self._prove_names(loaded.ref, files, facts)
        except BaseException:
            loaded.unwanted = True
            raise
        finally:
            loaded.users -= 1
            self._drop_if_idle(loaded)

    async def _prove_names(self, ref: AdapterRef, files: Snapshot, facts: adapters.AdapterFacts) -> None:
        """A small adapter may equal the base within rounding. An amplified copy cannot, unless vLLM ignores its tensors."""
        if facts.names in self._proven_names:
            return
        loud = await self._add(ref, adapters.amplified(files))
        try:
            if await self._equals_base(loud):
                raise LoadRefused(f"{ref.name} was loaded without effect: its log-probabilities equal the base model's")
        finally:
            await self._remove(loud)
        self._proven_names.add(facts.names)

    async def _add(self, ref: AdapterRef, files: Snapshot) -> _Loaded:
        lora_id = next(self._lora_ids)
        folder = self._config.folder / f"adapter-{lora_id}"
        await asyncio.to_thread(_write, folder, files)
        loaded = _Loaded(ref=ref, request=LoRARequest(f"{ref.name}#{lora_id}", lora_id, str(folder)), folder=folder)
        try:
            async with self._call(f"load {ref.name}"):
                await self._engine.add_lora(loaded.request)
        except SamplerDied:
            raise
        except Exception as error:  # vLLM refuses an adapter with whatever its parser raised
            shutil.rmtree(folder, ignore_errors=True)
            raise LoadRefused(f"{ref.name} was refused: {error}") from error
        return loaded

    def _drop_if_idle(self, loaded: _Loaded) -> None:
        key = (loaded.ref.tenant, loaded.ref.job, loaded.ref.version)
        if loaded.unwanted and not loaded.users and self._loaded.get(key) is loaded:
            del self._loaded[key]
            leaving = asyncio.create_task(self._remove(loaded), name=f"remove {loaded.ref.name}")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._left)

    def _left(self, leaving: asyncio.Task[None]) -> None:
        self._leaving.discard(leaving)
        if not leaving.cancelled() and (error := leaving.exception()) is not None:
            log.error("could not %s; its place is lost until the sampler starts anew", leaving.get_name(), exc_info=error)

    async def _remove(self, loaded: _Loaded) -> None:
        async with self._call(f"remove {loaded.ref.name}"):
            await self._engine.remove_lora(loaded.request.lora_int_id)
        shutil.rmtree(loaded.folder, ignore_errors=True)

    # Sampling

    async def sample(self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams) -> Sampled:
        if adapter.base:
            wanted, salt = _sampling_params(params), f"base/{adapter.tenant}"
            if params.json_schema is not None and await self._schemas_hold():
                wanted.structured_outputs = vllm_schemas.held_to(params.json_schema)
            try:
                return _sampled(await self._generate(prompt_ids, wanted, None, params.priority, salt=salt))
            except ValueError as error:  # vLLM's word for a request that it does not take, a schema that it cannot hold to among them
                raise PortError(f"vLLM refused the request: {error}", attribution="user") from error
        async with self._using(adapter) as loaded:
            sampled = _sampled(await self._generate(prompt_ids, _sampling_params(params), loaded, params.priority))
            await loaded.proven()
            return sampled

    async def stream(
        self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams, *, top_logprobs: int | None = None
    ) -> AsyncGenerator[Piece, None]:
        """A completion as it grows; ``stop`` strings end it and are left out. Closing the iterator aborts it. Raises ``PortError``."""
        wanted = _streaming_params(params, top_logprobs)
        try:
            async with self._using(adapter) as loaded:
                if loaded is not None:
                    await loaded.proven()
                stream = self._outputs(prompt_ids, wanted, loaded, params.priority, salt=f"base/{adapter.tenant}")
                async with aclosing(stream) as outputs:
                    async for output in outputs:
                        yield _piece(output, top_logprobs or 0)
        except ValueError as error:
            raise PortError(f"vLLM refused the request: {error}", attribution="user") from error

    @asynccontextmanager
    async def _using(self, adapter: AdapterRef) -> AsyncIterator[_Loaded | None]:
        """What is loaded under ``adapter``, which stays until the block ends; None for the base model."""
        if adapter.base:
            yield None
            return
        loaded = self._loaded.get((adapter.tenant, adapter.job, adapter.version))
        if loaded is None:
            raise PortError(f"{adapter.name} is not loaded")
        loaded.users += 1
        try:
            yield loaded
        finally:
            loaded.users -= 1
            self._drop_if_idle(loaded)

    async def _schemas_hold(self) -> bool:
        if self._holds_schemas is None:
            self._holds_schemas = await asyncio.to_thread(vllm_schemas.can_hold, self._engine.get_tokenizer(), self._config.vocabulary)
        return self._holds_schemas

    async def _generate(
        self, prompt_ids: list[int], params: SamplingParams, loaded: _Loaded | None, priority: int, *, salt: str = "base"
    ) -> RequestOutput:
        """``salt``: of the base model's cache, where nothing is loaded."""
        async for output in self._outputs(prompt_ids, params, loaded, priority, salt=salt):
            last = output
        return last

    async def _outputs(
        self, prompt_ids: list[int], params: SamplingParams, loaded: _Loaded | None, priority: int, *, salt: str
    ) -> AsyncGenerator[RequestOutput, None]:
        prompt = {"type": "token", "prompt_token_ids": prompt_ids, "cache_salt": loaded.salt if loaded else salt}
        stream = self._engine.generate(
            prompt, params, str(next(self._request_ids)), lora_request=loaded.request if loaded else None, priority=priority
        )
        try:
            async with aclosing(stream):
                async for output in stream:
                    yield output
        except EngineDeadError as error:
            raise self._dead("vLLM's engine ended") from error

    async def _probe(self, loaded: _Loaded | None) -> dict[int, float]:
        """Log-probabilities of the likeliest next tokens on a fixed prompt, by token id."""
        params = SamplingParams(max_tokens=1, temperature=0.0, logprobs=PROBE_LOGPROBS, detokenize=False)
        prompt_ids = [(7 * i + 3) % self._config.vocabulary for i in range(PROBE_TOKENS)]
        async with self._call("probe"):
            output = await self._generate(prompt_ids, params, loaded, ROLLOUT_PRIORITY - 1)
        return {token: entry.logprob for token, entry in output.outputs[0].logprobs[0].items()}

    async def _equals_base(self, loaded: _Loaded) -> bool:
        probe = await self._probe(loaded)
        shared = probe.keys() & self._base_probe.keys()
        if len(shared) < PROBE_LOGPROBS - 1:  # a tie at the end of the list may fall either way
            return False
        return all(abs(probe[token] - self._base_probe[token]) <= self._tolerance for token in shared)

    # The engine

    def stats(self) -> dict[str, Any]:
        """The scheduler's counters (see ``counters.FIELDS``), ``kv_used`` in 0..1, and what is loaded.

        ``kv_tokens``: tenant → tokens that lie in the cache for it; "": for the base model, and for adapters that come or go just now.
        """
        counted = self._counters.read()
        kv_used = counted.pop("kv_used_ppm") / 1e6
        tenants = {loaded.request.lora_int_id: loaded.ref.tenant for loaded in self._loaded.values()}
        held: Counter[str] = Counter()
        for number, tokens in self._counters.read_held().items():
            held[tenants.get(number, "")] += tokens
        return {**counted, "kv_used": kv_used, "kv_tokens": dict(held), "adapters_loaded": len(self._loaded)}

    @asynccontextmanager
    async def _call(self, what: str) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._config.call_seconds):
                yield
        except TimeoutError as error:
            raise self._dead(f"vLLM did not {what} within {self._config.call_seconds:g} s") from error
        except EngineDeadError as error:
            raise self._dead(f"vLLM's engine ended, asked to {what}") from error

    def _dead(self, reason: str) -> SamplerDied:
        self.died.set()
        return SamplerDied(reason)


def engine_args(config: SamplerConfig, counters_path: Path) -> dict[str, Any]:
    """Arguments of vLLM's ``AsyncEngineArgs``: ours, then the device's, then ``extra_engine_args``."""
    ours = {
        "model": str(config.model),
        "max_model_len": config.max_context_tokens,
        "max_num_seqs": config.max_sequences,
        # A whole prompt always fits into one step, so `enable_chunked_prefill=False` stays possible (see engine.device).
        "max_num_batched_tokens": max(4096, config.max_context_tokens),
        "enable_lora": True,
        "max_loras": config.adapters,
        "max_cpu_loras": 2 * config.adapters,
        "max_lora_rank": _lora_width(config.max_rank),
        "lora_target_modules": list(LORA_TARGETS),
        "logprobs_mode": "processed_logprobs",
        "enable_prefix_caching": True,
        "scheduling_policy": "priority",
        "structured_outputs_config": vllm_schemas.ENGINE_ARGUMENT,
        "disable_log_stats": True,
        "additional_config": {"marlaas_counters": str(counters_path)},
        "scheduler_cls": "engine.rollout.vllm_scheduler.CountedAsyncScheduler",
    }
    return ours | config.profile.vllm_kwargs | config.extra_engine_args


def _lora_width(rank: int) -> int:
    """The smallest of the widths that vLLM knows that holds ``rank``."""
    return next(width for width in (1, 8, 16, 32, 64, 128, 256, 320, 512) if width >= rank)


@lru_cache(maxsize=256)
def _unseeded(max_tokens: int, temperature: float, ignore_eos: bool, stop: tuple[str, ...]) -> SamplingParams:
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        ignore_eos=ignore_eos,
        logprobs=0,
        flat_logprobs=True,
        detokenize=bool(stop),  # the only thing that vLLM looks for in the text
        stop=list(stop),
        include_stop_str_in_output=True,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def _sampling_params(params: SampleParams) -> SamplingParams:
    # Building and checking them costs as much as sending the request; a copy does not.
    seeded = copy(_unseeded(params.max_new_tokens, params.temperature, params.ignore_eos, params.stop))
    if params.temperature:
        seeded.seed, seeded.top_p = params.seed, params.top_p
    return seeded


def _streaming_params(params: SampleParams, top_logprobs: int | None) -> SamplingParams:
    return SamplingParams(
        max_tokens=params.max_new_tokens,
        temperature=params.temperature,
        top_p=params.top_p if params.temperature else 1.0,
        seed=params.seed if params.temperature else None,
        stop=list(params.stop),
        logprobs=top_logprobs,
        output_kind=RequestOutputKind.DELTA,
    )


def _piece(output: RequestOutput, top: int) -> Piece:
    completion = output.outputs[0]
    if completion.finish_reason not in (None, "stop", "length"):
        raise PortError(f"a completion ended with {completion.finish_reason}")
    return Piece(
        text=completion.text,
        tokens=len(completion.token_ids),
        cached_tokens=output.num_cached_tokens or 0,
        finish_reason=completion.finish_reason or "",
        logprobs=tuple(_told(token, ranked, top) for token, ranked in zip(completion.token_ids, completion.logprobs or (), strict=False)),
    )


def _told(token: int, ranked: dict[int, Any], top: int) -> dict[str, Any]:
    """``ranked``: the sampled token and the ``top`` likeliest, which it may be one of or not."""
    likeliest = sorted((entry for entry in ranked.values() if entry.rank <= top), key=lambda entry: entry.rank)
    return {
        "token": ranked[token].decoded_token or "",
        "logprob": ranked[token].logprob,
        "top": [{"token": entry.decoded_token or "", "logprob": entry.logprob} for entry in likeliest],
    }


def _sampled(output: RequestOutput) -> Sampled:
    completion = output.outputs[0]
    if completion.finish_reason not in ("stop", "length"):
        raise PortError(f"a completion ended with {completion.finish_reason}")
    return Sampled(
        completion_ids=list(completion.token_ids),
        logprobs=list(completion.logprobs.logprobs),
        finish_reason=completion.finish_reason,
        cached_tokens=output.num_cached_tokens or 0,
    )


def _write(folder: Path, files: Snapshot) -> None:
    folder.mkdir(mode=0o700)
    for name in (adapters.CONFIG, adapters.WEIGHTS):
        (folder / name).write_bytes(files[name])
