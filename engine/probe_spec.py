"""What a probe is asked for: a job that is not started, and how many rows of its dataset the base model shall try first."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from engine.spec import JobSpec
from engine.strict import Strict

MAX_COMPLETIONS = 8192


class ProbeOrder(Strict):
    """``tenant`` is opaque to the engine. Each of ``rows`` rows is sampled as often as a group of the job has completions."""

    tenant: Annotated[str, Field(min_length=1, max_length=64)]
    spec: JobSpec
    rows: Annotated[int, Field(ge=1, le=2048, description="Rows to try, drawn at random; fewer where the dataset has fewer.")] = 64
    deadline_seconds: Annotated[float, Field(gt=0, le=3600)] = 900.0

    @property
    def sampled_rows(self) -> int:
        return min(self.rows, self.spec.dataset.train_rows)

    @property
    def completions(self) -> int:
        return self.sampled_rows * self.spec.rollout.group_size

    @model_validator(mode="after")
    def _not_too_many(self) -> ProbeOrder:
        if self.completions > MAX_COMPLETIONS:
            most, group = MAX_COMPLETIONS // self.spec.rollout.group_size, self.spec.rollout.group_size
            raise ValueError(
                f"rows: a probe samples at most {MAX_COMPLETIONS} completions; ask for at most {most} rows at a group of {group}"
            )
        return self
