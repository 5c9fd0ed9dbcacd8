"""vLLM's scheduler, counted: what each step held, written to a file that the worker process reads. Runs in the engine-core process.

vLLM's own statistics say nothing about adapters per batch, and cost more. Named in ``AsyncEngineArgs(scheduler_cls=…)``; the file's
path comes in ``additional_config``. It also keeps the outputs of ``FINAL_ONLY`` requests back until their end (``vllm_final_outputs``).
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from vllm.sampling_params import RequestOutputKind
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreOutputs

from engine.rollout.counters import Counters
from engine.rollout.vllm_final_outputs import FinalOutputs

COUNTERS_KEY = "marlaas_counters"
# Steps. Who holds the cache is for people to look at, and costs a walk over all requests: 53 µs for 512 of them (8 µs for 32) on one x86-64
# core, so 3 µs of each step.
HELD_EVERY = 16
NO_ADAPTER = 0


class _Counted:
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._counters = Counters(Path(self.vllm_config.additional_config[COUNTERS_KEY]))
        self._final_outputs = FinalOutputs(self._wants_final_only)

    def schedule(self, *args: Any, **kwargs: Any) -> SchedulerOutput:
        output = super().schedule(*args, **kwargs)
        self._final_outputs.forget(output.finished_req_ids)
        self._count(output)
        return output

    def update_from_output(self, *args: Any, **kwargs: Any) -> dict[int, EngineCoreOutputs]:
        answers = super().update_from_output(*args, **kwargs)
        for answer in answers.values():
            answer.outputs = self._final_outputs.pass_on(answer.outputs)
        return {client: answer for client, answer in answers.items() if _says_something(answer)}

    def _wants_final_only(self, name: str) -> bool:
        params = self.requests[name].sampling_params
        # Stop strings are looked for in the other process, in each token as it comes.
        return params is not None and params.output_kind == RequestOutputKind.FINAL_ONLY and not params.stop

    def _count(self, output: SchedulerOutput) -> None:
        values = self._counters.values
        if output.total_num_scheduled_tokens:
            values["steps"] += 1
            values["cached_tokens"] += sum(new.num_computed_tokens for new in output.scheduled_new_reqs)
            decoding = self._decoding(output)
            values["decode_tokens"] += decoding
            values["prefill_tokens"] += output.total_num_scheduled_tokens - decoding
            if decoding:
                values["decode_steps"] += 1
                values["decode_steps_with_2_adapters"] += self._holds_2_adapters(output)
        values["preempted"] += len(output.preempted_req_ids or ())
        values["running"], values["waiting"] = self.get_request_counts()
        values["kv_used_ppm"] = int(self.kv_cache_manager.usage * 1e6)
        self._counters.publish()
        if values["steps"] % HELD_EVERY == 0 or not self.running:
            self._counters.publish_held(self._held())

    def _held(self) -> Counter[int]:
        """Tokens in the cache by adapter; what requests share counts for each of them."""
        held: Counter[int] = Counter()
        for request in self.running:
            held[request.lora_request.lora_int_id if request.lora_request else NO_ADAPTER] += request.num_computed_tokens
        return held

    def _decoding(self, output: SchedulerOutput) -> int:
        """Requests of this step that already have output, one token each (no speculation here)."""
        cached = output.scheduled_cached_reqs
        resumed = cached.resumed_req_ids
        return sum(count > 0 and name not in resumed for name, count in zip(cached.req_ids, cached.num_output_tokens, strict=True))

    def _holds_2_adapters(self, output: SchedulerOutput) -> bool:
        first = None
        for name in output.num_scheduled_tokens:
            adapter = self.requests[name].lora_request
            if adapter is None:
                continue
            if first is None:
                first = adapter.lora_int_id
            elif adapter.lora_int_id != first:
                return True
        return False


def _says_something(answer: EngineCoreOutputs) -> bool:
    return bool(answer.outputs or answer.finished_requests or answer.scheduler_stats is not None)


class CountedScheduler(_Counted, Scheduler):
    """For executors without asynchronous scheduling (CPU)."""


class CountedAsyncScheduler(_Counted, AsyncScheduler):
    """For executors with asynchronous scheduling; vLLM refuses to mix the two."""
