"""The base model as a judge for the Reward Lab, which lives in the HTTP actor and has no sampler: over the manager to a rollout worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from engine.errors import EngineError
from engine.grader_spec import SamplingParams
from engine.rewards.graders import JUDGE, GradingFailed
from engine.rewards.judge import JudgeReply, Messages

Ask = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ManagersJudge:
    """Implements ``rewards.judge.Judge``. ``ask``: the manager's ``judge``."""

    def __init__(self, ask: Ask):
        self._ask = ask

    async def complete(self, messages: Messages, *, params: SamplingParams, schema: Mapping[str, Any], owner: str) -> JudgeReply:
        question = {"owner": owner, "messages": list(messages), "schema": dict(schema), "params": params.model_dump()}
        try:
            answer = await self._ask(question)
        except EngineError as error:
            raise GradingFailed(JUDGE, f"the base model gave no verdict: {error}", retry=True) from error
        if "failed" in answer:
            raise GradingFailed(JUDGE, answer["failed"], retry=answer["retry"])
        return JudgeReply(text=answer["text"], tokens=answer["tokens"])

    async def close(self) -> None:
        """The manager is not its own."""
