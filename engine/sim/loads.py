"""What the simulator must know of a benchmark's workload. ``engine.bench`` holds the workloads; anything with these attributes will do."""

from __future__ import annotations

from typing import Protocol


class WaitLike(Protocol):
    """A lognormal wait with its cap, as ``spec.ToolWait`` and ``profile.WaitDistribution`` have it."""

    @property
    def median_seconds(self) -> float: ...
    @property
    def sigma(self) -> float: ...
    @property
    def cap_seconds(self) -> float: ...


class LoadLike(Protocol):
    """One job of a workload. A workload of N jobs is a list of N such values, in the order of submission.

    ``new_tokens``: sampled per turn, as a mean: the cap where the end token is ignored, else what was measured.
    ``prompt_tokens``: of the rendered prompt, as a mean. ``tool_turns``: how often the environment answers before the last turn (0: a
    single turn); each answer takes ``tool_wait`` and adds ``tool_tokens`` to the context. ``final_wait``: a wait after the last turn,
    before the reward (None: none).
    """

    @property
    def steps(self) -> int: ...
    @property
    def prompts_per_step(self) -> int: ...
    @property
    def group_size(self) -> int: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def new_tokens(self) -> int: ...
    @property
    def tool_turns(self) -> int: ...
    @property
    def tool_tokens(self) -> int: ...
    @property
    def tool_wait(self) -> WaitLike | None: ...
    @property
    def final_wait(self) -> WaitLike | None: ...
