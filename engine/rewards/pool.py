"""Any grader, for an event loop: cheap ones in place, the others in child processes, in the sandbox or over the network.

Each completion is graded as soon as it is there. A failed grading is tried once more where that may help, and is then invalid with a
kind and a reason that names row and grader; it is never 0.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine import grader_spec as spec
from engine.rewards import endpoint, judge, sandboxed
from engine.rewards.children import ChildPool
from engine.rewards.formula import Formula, FormulaError
from engine.rewards.graders import (
    FORMULA,
    HTTP,
    RIGHT,
    UNAVAILABLE,
    WRONG,
    GradeResult,
    GradingFailed,
    checked_reward,
    filled,
    grade_in_place,
    invalid,
)
from engine.rewards.numbers import plain_verdict
from engine.rewards.outbound import Outbound
from engine.rewards.sample import NotJson, Sample, parse_json
from engine.rewards.sandbox import Output
from engine.sealed import CannotOpen, Sealer

# Beyond this a text holds no more of an answer, and the parser's time grows with the length.
_MAX_MATH_CHARACTERS = 4_000
_TRIES = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class _Case:
    """What is graded, and for whom."""

    sample: Sample
    item: Mapping[str, Any]
    owner: str


class GraderPool:
    """``judges``: by the name that a tenant's grader calls them. Without a ``sandbox``, code is invalid, as is a judge that is unknown.
    ``sealer``: opens the secrets that requests are signed with.

    ``math_processes`` comparisons run at once; processes start with the first job that needs them, or with ``start``.
    """

    def __init__(
        self,
        *,
        math_processes: int = 1,
        math_seconds: float = 5.0,
        text_processes: int = 1,
        text_seconds: float = 2.0,
        sandbox: sandboxed.SandboxPort | None = None,
        judges: Mapping[str, judge.Judge] | None = None,
        outbound: Outbound | None = None,
        sealer: Sealer | None = None,
        now: Callable[[], float] = time.time,
    ):
        self._math = ChildPool("math", size=math_processes, seconds=math_seconds)
        self._text = ChildPool("text", size=text_processes, seconds=text_seconds, memory_bytes=2**30)
        self._sandbox, self._judges, self._now = sandbox, dict(judges or {}), now
        self._outbound, self._sealer = outbound, sealer or Sealer(bearer="")
        self._ways: dict[type, Callable[[Any, _Case], Awaitable[GradeResult]]] = {
            spec.StringCheckGrader: self._in_place,
            spec.NumericGrader: self._in_place,
            spec.MathGrader: self._by_math,
            spec.TextSimilarityGrader: self._by_similarity,
            spec.JsonSchemaGrader: self._by_schema,
            spec.PythonGrader: self._by_python,
            spec.CodeExecGrader: self._by_tests,
            spec.HttpGrader: self._by_endpoint,
            spec.ScoreModelGrader: self._by_score,
            spec.LabelModelGrader: self._by_label,
            spec.MultiGrader: self._by_formula,
        }

    async def start(self) -> None:
        """Start the math processes ahead of time."""
        await self._math.start()

    async def close(self) -> None:
        await self._math.close()
        await self._text.close()
        for part in (self._outbound, self._sandbox, *self._judges.values()):
            if part is not None:
                await part.close()

    async def grade(
        self,
        grader: Any,
        text: str,
        item: Mapping[str, Any],
        *,
        tool_calls: Sequence[Mapping[str, Any]] = (),
        owner: str = "",
        row: int | None = None,
    ) -> GradeResult:
        """Never raises on any text or item. ``owner``: an opaque name of the tenant's job; what it has is never shared with another.

        ``components`` hold the reward under the grader's own name, and what it is made of.
        """
        sample = Sample(output_text=text, tool_calls=tool_calls)
        result = await self._graded(grader, _Case(sample=sample, item=item, owner=owner))
        reason = f"row {row}: {result.invalid}" if result.invalid and row is not None else result.invalid
        return replace(result, invalid=reason, components={**result.components, grader.name: result.reward})

    async def printed(self, grader: Any, *, owner: str) -> Output:
        """What a Python reward printed during its latest batch; nothing for all others."""
        if self._sandbox is None or not isinstance(grader, spec.PythonGrader):
            return Output()
        return await sandboxed.printed(self._sandbox, grader, owner=owner)

    async def _graded(self, grader: Any, case: _Case) -> GradeResult:
        tokens, failure = 0, GradingFailed(UNAVAILABLE, "was not graded")
        for _ in range(_TRIES):
            try:
                result = await self._ways[type(grader)](grader, case)
                return replace(result, judge_tokens=result.judge_tokens + tokens)
            except NotJson:
                # The template asks for JSON, and the model wrote none: as wrong as an answer can be.
                return GradeResult(reward=grader.bounds[0], judge_tokens=tokens)
            except GradingFailed as found:
                tokens, failure = tokens + found.judge_tokens, found
                if not found.retry:
                    break
        return invalid(f"{grader.name}: {failure.reason}", kind=failure.kind, judge_tokens=tokens, line=failure.line)

    async def _in_place(self, grader: Any, case: _Case) -> GradeResult:
        return grade_in_place(grader, case.sample, case.item)

    async def _by_math(self, grader: spec.MathGrader, case: _Case) -> GradeResult:
        reference, answer = _pair(grader, case)
        verdict = plain_verdict(answer, reference)
        if verdict is None:
            request = {"answer": answer[-_MAX_MATH_CHARACTERS:], "reference": reference}
            verdict = await self._math.ask(request, owner=case.owner)
        return RIGHT if verdict else WRONG

    async def _by_similarity(self, grader: spec.TextSimilarityGrader, case: _Case) -> GradeResult:
        reference, answer = _pair(grader, case)
        request = {"metric": grader.evaluation_metric, "answer": answer, "reference": reference}
        return GradeResult(reward=checked_reward(await self._text.ask(request, owner=case.owner), spec.UNIT))

    async def _by_schema(self, grader: spec.JsonSchemaGrader, case: _Case) -> GradeResult:
        document = parse_json(filled(grader.input, case.sample, case.item))
        request = {"schema": json.dumps(grader.json_schema), "answer": json.dumps(document)}
        return RIGHT if await self._text.ask(request, owner=case.owner) else WRONG

    async def _by_python(self, grader: spec.PythonGrader, case: _Case) -> GradeResult:
        return await sandboxed.run_reward(self._sandboxed(), grader, case.sample, case.item, owner=case.owner)

    async def _by_tests(self, grader: spec.CodeExecGrader, case: _Case) -> GradeResult:
        return await sandboxed.run_tests(self._sandboxed(), grader, case.sample, case.item)

    async def _by_endpoint(self, grader: spec.HttpGrader, case: _Case) -> GradeResult:
        self._outbound = self._outbound or Outbound()
        secret = self._secret(grader, case.owner)
        return await endpoint.ask(self._outbound, grader, case.sample, case.item, owner=case.owner, now=self._now, secret=secret)

    async def _by_score(self, grader: spec.ScoreModelGrader, case: _Case) -> GradeResult:
        return await judge.score(self._judge(grader.model), grader, case.sample, case.item, owner=case.owner)

    async def _by_label(self, grader: spec.LabelModelGrader, case: _Case) -> GradeResult:
        return await judge.label(self._judge(grader.model), grader, case.sample, case.item, owner=case.owner)

    async def _by_formula(self, grader: spec.MultiGrader, case: _Case) -> GradeResult:
        formula = _formula(grader.calculate_output)
        names = list(grader.graders)
        results = dict(zip(names, await asyncio.gather(*(self._graded(grader.graders[name], case) for name in names)), strict=True))
        components = {name: result.reward for name, result in results.items()}
        for name, result in results.items():
            components |= {f"{name}.{part}": value for part, value in result.components.items()}
        tokens = sum(result.judge_tokens for result in results.values())
        used = {name: results[name] for name in names if name in formula.names}
        for name, result in used.items():
            if result.invalid:
                reason = f"{grader.name}: {name}: {result.invalid}"
                return replace(result, invalid=reason, components=components, judge_tokens=tokens)
        if any(result.reward is None for result in used.values()):
            return GradeResult(reward=None, components=components, judge_tokens=tokens)
        try:
            reward = checked_reward(formula.value({name: result.reward for name, result in used.items()}), grader.bounds)
        except FormulaError as error:
            raise GradingFailed(FORMULA, f"calculate_output {error}", judge_tokens=tokens) from None
        return GradeResult(reward=reward, components=components, judge_tokens=tokens)

    def _secret(self, grader: spec.HttpGrader, owner: str) -> str:
        try:
            return self._sealer.open(grader.signing_secret, tenant=owner.partition("/")[0])
        except CannotOpen as error:
            raise GradingFailed(HTTP, f"the signing secret {error}; make the reward again with a new one") from None

    def _sandboxed(self) -> sandboxed.SandboxPort:
        if self._sandbox is None:
            raise GradingFailed(UNAVAILABLE, "this engine runs no code: its sandbox is not there")
        return self._sandbox

    def _judge(self, name: str) -> judge.Judge:
        if name not in self._judges:
            raise GradingFailed(UNAVAILABLE, f"the operator lists no judge {name!r}")
        return self._judges[name]


@functools.lru_cache(maxsize=256)
def _formula(text: str) -> Formula:
    return Formula.parse(text)


def _pair(grader: Any, case: _Case) -> tuple[str, str]:
    """(reference, answer); the reference first, since a row that cannot be graded is invalid whatever the model wrote."""
    return filled(grader.reference, case.sample, case.item), filled(grader.input, case.sample, case.item)
