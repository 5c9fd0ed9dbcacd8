"""Steps whose durations can be worked out by hand, on ``ConstantSpeeds``: an iteration takes a second."""

from __future__ import annotations

import math

from engine.sim.distributions import CappedLogNormal
from engine.sim.speeds import ConstantSpeeds
from engine.sim.workload import SimJob, StepShape

SECOND = ConstantSpeeds(fixed_train_seconds=1.0)


def always(value: float) -> CappedLogNormal:
    return CappedLogNormal(median=value, sigma=0.0)


def shape(*, decode_seconds: float = 10.0, env_seconds: float = 0.0, **changes) -> StepShape:
    """One sequence that decodes for so long (its first token comes with its prefill) and is judged for so long."""
    fields = {
        "prompts_per_step": 1,
        "group_size": 1,
        "prompt_tokens": 1,
        "new_tokens": always(decode_seconds + 1),
        "max_new_tokens": math.inf,
        "final_wait": always(env_seconds) if env_seconds else None,
    }
    return StepShape(**{**fields, **changes})


def job(name: str = "j0", *, steps: int = 2, submitted_at: float = 0.0, eval_seconds: float = 0.0, **of_shape) -> SimJob:
    return SimJob(
        job=name, tenant=name, steps=steps, submitted_at=submitted_at, eval_seconds=eval_seconds, shape=shape(**of_shape), kv_bytes=1
    )


def jobs(count: int, **changes) -> list[SimJob]:
    return [job(f"j{n}", **changes) for n in range(count)]
