"""One message per completion instead of one per token, between vLLM's engine core and this process.

A request that asked for its final output only (``RequestOutputKind.FINAL_ONLY``) still has every token sent, decoded and booked on its
own; for short completions of a small model that costs more than sampling them. Here its outputs wait in the engine core and leave as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
from vllm.v1.engine import EngineCoreOutput
from vllm.v1.outputs import LogprobsLists


class FinalOutputs:
    """``final_only``: whether the request of that id, still running, wants nothing before its end."""

    def __init__(self, final_only: Callable[[str], bool]):
        self._final_only = final_only
        self._held: defaultdict[str, list[EngineCoreOutput]] = defaultdict(list)

    def pass_on(self, outputs: Iterable[EngineCoreOutput]) -> list[EngineCoreOutput]:
        """Those outputs of a step that leave now."""
        leaving = []
        for output in outputs:
            name = output.request_id
            if output.finish_reason is not None:
                leaving.append(_merged([*self._held.pop(name, ()), output]))
            elif self._final_only(name):
                self._held[name].append(output)
            else:
                leaving.append(output)
        return leaving

    def forget(self, names: Iterable[str]) -> None:
        """Requests that ended in whatever way: an aborted one never sends a last output."""
        for name in names:
            self._held.pop(name, None)


def _merged(parts: list[EngineCoreOutput]) -> EngineCoreOutput:
    first, last = parts[0], parts[-1]
    if first is last:
        return last
    last.new_token_ids = [token for part in parts for token in part.new_token_ids]
    last.new_logprobs = _joined([part.new_logprobs for part in parts if part.new_logprobs is not None])
    last.prefill_stats = first.prefill_stats
    last.new_prompt_logprobs_tensors = first.new_prompt_logprobs_tensors
    return last


def _joined(parts: list[LogprobsLists]) -> LogprobsLists | None:
    if not parts:
        return None
    # A step is as wide as its widest request (a probe wants 8 beside the sampled one); what this request wants fits the narrowest.
    width = min(part.logprobs.shape[1] for part in parts)
    return LogprobsLists(
        np.concatenate([part.logprob_token_ids[:, :width] for part in parts]),
        np.concatenate([part.logprobs[:, :width] for part in parts]),
        np.concatenate([part.sampled_token_ranks for part in parts]),
    )
