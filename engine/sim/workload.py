"""What the simulated jobs do: how long each of their steps samples, waits for its environment, and trains."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from engine.core.messages import Submitted


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """``decode_seconds``: the sampler's work for a lone job; ``env_seconds``: tools and rewards, on no device; ``train_seconds``."""

    decode_seconds: float
    env_seconds: float
    train_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class SimJob:
    """One job. Each duration is the median of a lognormal with ``spread`` as sigma (0: always the same)."""

    job: str
    tenant: str
    steps: int
    kv_bytes: int
    decode_seconds: float
    env_seconds: float
    train_seconds: float
    eval_seconds: float = 0.0
    spread: float = 0.0
    submitted_at: float = 0.0
    seed: int = 0

    def times(self, version: int, attempt: int = 1) -> StepTimes:
        """The durations of one attempt at one step: a pure function of the job's seed and the step."""
        chance = random.Random(f"{self.seed}/{self.job}/{version}/{attempt}")
        stretch = [math.exp(self.spread * chance.gauss(0.0, 1.0)) for _ in range(3)]
        return StepTimes(
            decode_seconds=self.decode_seconds * stretch[0],
            env_seconds=self.env_seconds * stretch[1],
            train_seconds=self.train_seconds * stretch[2],
        )

    def submission(self) -> Submitted:
        return Submitted(
            at=self.submitted_at,
            job=self.job,
            tenant=self.tenant,
            steps=self.steps,
            kv_bytes=self.kv_bytes,
            eval_ends=self.eval_seconds > 0,
        )


def workload(name: str, *, jobs: int, steps: int, seed: int = 0) -> list[SimJob]:
    """``jobs`` jobs of three tenants, all submitted at 0. Raises ``KeyError`` for an unknown name.

    The shapes follow the method's premise (arXiv 2605.08527): rollout and environment take 10 to 100 times as long as training.
    ``reasoning`` samples only, ``agentic`` waits for tools as long as it samples, ``mixed`` is a third each of reasoning, agentic and
    slow agentic. They are illustrations, not measurements.
    """
    shapes = SHAPES[name]
    return [_job(number, shapes[number % len(shapes)], steps, seed) for number in range(jobs)]


SHAPES: dict[str, list[tuple[float, float, float]]] = {
    "reasoning": [(60.0, 0.0, 2.0)],
    "agentic": [(30.0, 30.0, 2.0)],
    "mixed": [(60.0, 0.0, 2.0), (30.0, 30.0, 2.0), (30.0, 120.0, 2.0)],
}


def _job(number: int, shape: tuple[float, float, float], steps: int, seed: int) -> SimJob:
    decode, env, train = shape
    return SimJob(
        job=f"job{number:04d}",
        tenant=f"tenant{number % 3}",
        steps=steps,
        kv_bytes=1,
        decode_seconds=decode,
        env_seconds=env,
        train_seconds=train,
        spread=0.3,
        seed=seed,
    )
