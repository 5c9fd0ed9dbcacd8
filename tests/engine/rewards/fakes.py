"""A judge and a sandbox without a model and without a process: both say what a script says and note what they are asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.grader_spec import SamplingParams
from engine.rewards.graders import GradingFailed
from engine.rewards.judge import JudgeReply, Messages
from engine.rewards.sandbox import CodeTest, Limits, Output, TestOutcome, Verdict


@dataclass(kw_only=True)
class FakeJudge:
    """``says``: one answer after the other, the last again and again. Each costs 10 tokens."""

    says: list[str | GradingFailed]
    asked: list[Messages] = field(default_factory=list)
    schemas: list[Mapping[str, Any]] = field(default_factory=list)

    async def complete(self, messages: Messages, *, params: SamplingParams, schema: Mapping[str, Any], owner: str) -> JudgeReply:
        self.asked.append(messages)
        self.schemas.append(schema)
        answer = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(answer, GradingFailed):
            raise answer
        return JudgeReply(text=answer, tokens=10)

    async def close(self) -> None: ...


@dataclass(kw_only=True)
class FakeSandbox:
    """``verdicts``: one after the other, the last again and again. ``passes``: whether code passes a test."""

    verdicts: list[Verdict] = field(default_factory=list)
    passes: Callable[[str, CodeTest], TestOutcome] = lambda code, test: TestOutcome(passed=True)
    keys: list[str] = field(default_factory=list)
    items: list[Mapping[str, Any]] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    prints: str = ""

    async def grade(self, key: str, source: str, items: Sequence[Mapping[str, Any]], limits: Limits | None = None) -> list[Verdict]:
        self.keys.append(key)
        self.items += items
        return [self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0] for _ in items]

    async def run_code(self, code: str, tests: Sequence[CodeTest], limits: Limits | None = None) -> list[TestOutcome]:
        self.code.append(code)
        return [self.passes(code, test) for test in tests]

    async def output(self, key: str, source: str) -> Output:
        return Output(text=self.prints)

    async def close(self) -> None: ...
