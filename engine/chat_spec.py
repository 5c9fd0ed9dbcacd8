"""ChatOrder: what ``POST /generate`` takes. Light like ``engine.spec``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from engine.strict import Strict

MAX_COMPLETIONS, MAX_STOPS, MAX_TOP_LOGPROBS = 8, 4, 20


class ChatMessage(Strict):
    role: Literal["system", "user", "assistant"]
    content: Annotated[str, Field(max_length=500_000)]


class ChatOrder(Strict):
    """Completions of a chat by the base model, or by a committed version of one of the tenant's jobs.

    ``max_new_tokens``: None, as many as the context still holds. ``seed``: completion k samples with ``seed`` + k. ``top_logprobs``: None,
    no log-probabilities; they are of the distribution that was sampled from, the temperature in it. ``deadline_seconds``: from its first
    sampled token to the last.
    """

    tenant: Annotated[str, Field(min_length=1, max_length=64)]
    job: Annotated[str | None, Field(max_length=64)] = None
    version: Annotated[int | None, Field(ge=0, le=10**9)] = None
    messages: Annotated[tuple[ChatMessage, ...], Field(min_length=1, max_length=1000)]
    n: Annotated[int, Field(ge=1, le=MAX_COMPLETIONS)] = 1
    max_new_tokens: Annotated[int | None, Field(ge=1, le=1_000_000)] = None
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    stop: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=200)], ...], Field(max_length=MAX_STOPS)] = ()
    top_logprobs: Annotated[int | None, Field(ge=0, le=MAX_TOP_LOGPROBS)] = None
    deadline_seconds: Annotated[float, Field(gt=0, le=600)] = 120.0

    @model_validator(mode="after")
    def _version_of_a_job(self) -> ChatOrder:
        if self.job is None and self.version is not None:
            raise ValueError("version is of a job; name the job, or leave the version out for the base model")
        return self
