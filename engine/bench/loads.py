"""The loads, as values: what each of N tenants runs. All with LoRA r=8 on all linear layers.

The ``peer-…`` ones are what other systems were measured with on two cores. ``reasoning``, ``agentic`` and ``mixed`` compare the scheduling
regimes: 8 prompts × 8 completions a step on the bundled model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.blobs import BlobStore
from engine.models import tasks
from engine.spec import DatasetRef
from engine.workload import canonical

# Room for the observations below and for the mark that the engine puts where it cuts a longer one.
OBSERVATION_TOKENS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Tools:
    """A stand-in for tools: after each of ``turns`` turns a lognormal wait (``median_seconds``, σ 0.5, at most ``cap_seconds``) and then
    ``observation``. ``answer``: whether the model has a turn behind the last one.
    """

    turns: int
    median_seconds: float
    cap_seconds: float
    observation: str = ""
    answer: bool = True

    @property
    def environment(self) -> dict[str, Any]:
        latency = {"median_seconds": self.median_seconds, "sigma": 0.5, "cap_seconds": self.cap_seconds}
        turns = {
            "tool_turns": self.turns,
            "observation": self.observation,
            "max_observation_tokens": OBSERVATION_TOKENS,
            "answer_turn": self.answer,
        }
        return {"type": "stand_in", "latency": latency, **turns}


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """``new_tokens``: at most so many a turn, and always so many with ``to_the_limit``: the end token then ends nothing, and every step
    samples the same number of tokens.

    ``wanted``: a character that about half of the completions hold. It is the reward, so that groups differ and there is something to
    train on: a load without any signal would train nothing and look fast. ``bare``: an empty system message in front of each prompt, where
    a model's chat template would put a long one.
    """

    name: str
    model: str
    task: str
    prompts_per_step: int
    group_size: int
    new_tokens: int
    steps: int
    prompt_tokens: int
    learning_rate: float
    wanted: str
    to_the_limit: bool = True
    tools: Tools | None = None
    bare: bool = False

    def dataset(self, blobs: BlobStore, *, seed: int) -> DatasetRef:
        """As many rows as the steps take, put into ``blobs``."""
        count = self.prompts_per_step * self.steps
        rows = tasks.rows(self.task, count=count, seed=seed)
        if self.bare:
            rows = [{**row, "messages": [{"role": "system", "content": ""}, {"role": "user", "content": row["prompt"]}]} for row in rows]
        return DatasetRef(version=f"{self.name}-{seed}-{count}", train=blobs.put(canonical(rows)), train_rows=count)

    def spec(self, dataset: dict[str, Any], *, seed: int) -> dict[str, Any]:
        """A ``JobSpec`` as JSON, with ``dataset`` as JSON."""
        return {
            "base_model": self.model,
            "dataset": dataset,
            "grader": {"type": "string_check", "operation": "like", "reference": self.wanted},
            "rollout": {
                "prompts_per_step": self.prompts_per_step,
                "group_size": self.group_size,
                "max_prompt_tokens": self.prompt_tokens,
                "max_new_tokens": self.new_tokens,
                "ignore_eos": self.to_the_limit,
            },
            "environment": {"type": "single_turn"} if self.tools is None else self.tools.environment,
            "lora": {"rank": 8, "alpha": 16},
            "train": {"steps": self.steps, "learning_rate": self.learning_rate},
            "seed": seed,
        }


@dataclass(frozen=True, kw_only=True)
class BenchJob:
    """A job to submit: its ``spec`` as JSON, and what it is called in the report."""

    kind: str
    spec: dict[str, Any]

    @property
    def steps(self) -> int:
        return self.spec["train"]["steps"]


def bench_jobs(workload: str, count: int, blobs: BlobStore) -> list[BenchJob]:
    """``count`` jobs of the workload's loads in turn; job n has the dataset and the seed n, always."""
    return [job_of(WORKLOADS[workload][number % len(WORKLOADS[workload])], blobs, number) for number in range(count)]


def job_of(load: Load, blobs: BlobStore, number: int) -> BenchJob:
    return BenchJob(kind=load.name, spec=load.spec(load.dataset(blobs, seed=number).model_dump(mode="json"), seed=number))


_PEER = {
    "model": "tiny-math",
    "task": "add",
    "prompts_per_step": 4,
    "group_size": 8,
    "new_tokens": 16,
    "steps": 10,
    "prompt_tokens": 24,
    "learning_rate": 1e-5,
    "wanted": "0",
}
PEER_PLAIN = Load(name="peer-plain", **_PEER)
PEER_TOOL = Load(name="peer-tool", **_PEER, tools=Tools(turns=1, median_seconds=0.5, cap_seconds=3.0, answer=False))
PEER_LM = Load(
    name="peer-lm",
    **_PEER | {"model": "smollm2-135m", "prompts_per_step": 2, "group_size": 4, "steps": 3, "prompt_tokens": 32, "learning_rate": 1e-6},
    bare=True,
)

# A thinking model uses the room it is given: always 24 tokens, where the bundled model's own answers would end after three.
REASONING = replace(PEER_PLAIN, name="reasoning", prompts_per_step=8, new_tokens=24, steps=20)
# Another problem as the tool's answer: so the bundled model, which knows nothing else, has something to go on with and ends by itself.
_OBSERVATION = "27+15="
AGENTIC = replace(
    REASONING,
    name="agentic",
    steps=10,
    to_the_limit=False,
    tools=Tools(turns=2, median_seconds=0.5, cap_seconds=3.0, observation=_OBSERVATION),
)
SLOW_AGENTIC = replace(AGENTIC, name="slow-agentic", tools=Tools(turns=2, median_seconds=2.0, cap_seconds=6.0, observation=_OBSERVATION))

WORKLOADS: dict[str, Sequence[Load]] = {
    "reasoning": (REASONING,),
    "agentic": (AGENTIC,),
    "mixed": (REASONING, AGENTIC, SLOW_AGENTIC),
    "peer-plain": (PEER_PLAIN,),
    "peer-tool": (PEER_TOOL,),
    "peer-lm": (PEER_LM,),
}
LOADS = {load.name: load for loads in WORKLOADS.values() for load in loads}
