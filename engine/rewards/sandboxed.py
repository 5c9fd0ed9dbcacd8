"""Tenants' Python rewards and models' code, graded through the sandbox: what goes in, and what its verdicts mean."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from engine.grader_spec import CodeExecGrader, PythonGrader
from engine.rewards.graders import (
    DOES_NOT_APPLY,
    REFERENCE,
    UNAVAILABLE,
    GradeResult,
    GradingFailed,
    checked_components,
    checked_reward,
    filled,
)
from engine.rewards.sample import Sample
from engine.rewards.sandbox import AssertTest, CallTest, CodeTest, Failed, Limits, NotApplicable, Output, StdinTest, TestOutcome, Verdict

MAX_TESTS = 200
_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(?P<code>.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
# Trying these again would end the same way, and a call that ran into its deadline would keep the batch for another one. A worker that was
# lost by our fault had its second try in the sandbox.
_FINAL = ("import_error", "too_large", "timeout", "hard_timeout")


class SandboxPort(Protocol):
    """What ``engine.rewards.sandbox.Sandbox`` offers."""

    async def grade(self, key: str, source: str, items: Sequence[Mapping[str, Any]], limits: Limits = ...) -> list[Verdict]: ...
    async def run_code(self, code: str, tests: Sequence[CodeTest], limits: Limits = ...) -> list[TestOutcome]: ...
    async def output(self, key: str, source: str) -> Output: ...
    async def close(self) -> None: ...


async def run_reward(sandbox: SandboxPort, grader: PythonGrader, sample: Sample, item: Mapping[str, Any], *, owner: str) -> GradeResult:
    """Raises ``GradingFailed``."""
    items = [{"sample": sample.as_dict(), "item": dict(item)}]
    (verdict,) = await sandbox.grade(_key(owner, grader), grader.source, items, Limits())
    if isinstance(verdict, Failed):
        raise _failure(verdict)
    if isinstance(verdict, NotApplicable):
        return DOES_NOT_APPLY
    return GradeResult(reward=checked_reward(verdict.reward, grader.range), components=checked_components(verdict.components))


async def printed(sandbox: SandboxPort, grader: PythonGrader, *, owner: str) -> Output:
    """What the reward printed during its latest batch."""
    return await sandbox.output(_key(owner, grader), grader.source)


def _key(owner: str, grader: PythonGrader) -> str:
    return f"{owner}:{hashlib.sha256(grader.source.encode()).hexdigest()[:16]}"


async def run_tests(sandbox: SandboxPort, grader: CodeExecGrader, sample: Sample, item: Mapping[str, Any]) -> GradeResult:
    """Code that fails, hangs or crashes is wrong, not invalid; tests that cannot be read, and a sandbox that is not there, are invalid."""
    tests = parse_tests(filled(grader.tests, sample, item))
    outcomes = await sandbox.run_code(code_in(filled(grader.input, sample, item)), tests, Limits(call_seconds=grader.seconds))
    for outcome in outcomes:
        if outcome.error is not None and outcome.error.kind in (UNAVAILABLE, "aborted"):
            raise _failure(outcome.error)
    passed = sum(outcome.passed for outcome in outcomes)
    return GradeResult(reward=passed / len(tests) if grader.partial else float(passed == len(tests)))


def code_in(text: str) -> str:
    """The last fenced block of ``text``, or all of it where there is none."""
    blocks = _FENCED.findall(text)
    return blocks[-1] if blocks else text


def parse_tests(text: str) -> list[CodeTest]:
    """Python with asserts, or JSON: a list of tests, or APPS's ``{"inputs": […], "outputs": […]}``. Raises ``GradingFailed``.

    A test is a text (Python with asserts), ``{"stdin", "stdout"}``, or ``{"function", "args", "kwargs", "expected"}``.
    """
    try:
        raw = json.loads(text)
    except (ValueError, RecursionError):
        return [AssertTest(source=text)] if text.strip() else _refuse("are empty")
    if isinstance(raw, dict) and isinstance(raw.get("inputs"), list) and isinstance(raw.get("outputs"), list):
        if len(raw["inputs"]) != len(raw["outputs"]):
            _refuse(f"have {len(raw['inputs'])} inputs and {len(raw['outputs'])} outputs")
        raw = [{"stdin": given, "stdout": wanted} for given, wanted in zip(raw["inputs"], raw["outputs"], strict=True)]
    tests = raw if isinstance(raw, list) else [raw]
    if not 1 <= len(tests) <= MAX_TESTS:
        _refuse(f"are {len(tests)}; 1 to {MAX_TESTS} can be run")
    return [_test(test, number) for number, test in enumerate(tests, 1)]


def _test(raw: Any, number: int) -> CodeTest:
    match raw:
        case str() if raw.strip():
            return AssertTest(source=raw)
        case {"stdin": str(given), "stdout": str(wanted)}:
            return StdinTest(stdin=given, stdout=wanted)
        case {"function": str(name), "expected": wanted, **rest} if name.isidentifier():
            args, kwargs = rest.get("args", []), rest.get("kwargs", {})
            if isinstance(args, list) and isinstance(kwargs, dict):
                return CallTest(function=name, args=tuple(args), kwargs=kwargs, expected=wanted)
    ways = 'Python with asserts, {"stdin", "stdout"} or {"function", "args", "expected"}'
    return _refuse(f"hold no test at number {number}; write {ways}")


def _refuse(why: str) -> Any:
    raise GradingFailed(REFERENCE, f"the tests {why}")


def _failure(failed: Failed) -> GradingFailed:
    where = f" (line {failed.line})" if failed.line is not None else ""
    return GradingFailed(failed.kind, f"{failed.message}{where}", retry=failed.kind not in _FINAL, line=failed.line)
