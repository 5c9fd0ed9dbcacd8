from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from engine.errors import Invalid
from engine.rewards.corpus import all_cases
from engine.rewards.lab import Lab, LabOrder
from engine.rewards.pool import GraderPool
from engine.rewards.sandbox import Failed, Graded, Sandbox
from tests.engine.rewards.fakes import FakeSandbox

pytestmark = pytest.mark.asyncio
PYTHON = "def grade(sample, item):\n    return 1.0\n"


def order(grader: dict[str, Any] | None = None, texts: tuple[str, ...] = ("42",), **more: Any) -> LabOrder:
    cases = [{"sample": {"output_text": text}, "item": {"answer": "42"}} for text in texts]
    return LabOrder(**{"tenant": "org", "grader": grader or {"type": "numeric"}, "cases": cases, **more})


def ticking() -> Any:
    """A clock that goes on by a quarter of a second with every look."""
    steps = itertools.count()
    return lambda: next(steps) / 4


async def rewards(lab: Lab, wanted: LabOrder) -> list[float | None]:
    return [result["outcomes"][0]["reward"] for result in (await lab.run(wanted))["results"]]


async def test_each_case_is_graded_in_its_order():
    assert await rewards(Lab(GraderPool), order(texts=("42", "41", "the answer is 42"))) == [1.0, 0.0, 1.0]


async def test_a_bad_grader_is_refused_with_its_field():
    with pytest.raises(Invalid) as refused:
        await Lab(GraderPool).run(order({"type": "numeric", "absolute_tolerance": -1}))
    assert refused.value.param == "grader.absolute_tolerance"


async def test_what_there_is_no_time_for_is_left_for_the_next_call():
    lab = Lab(GraderPool, clock=ticking())
    wanted = order(texts=("42",) * 9)
    first = await lab.run(wanted)
    second = await lab.run(wanted.model_copy(update={"start": len(first["results"])}))
    numbers = [result["number"] for result in (*first["results"], *second["results"])]
    assert 0 < len(first["results"]) < 9
    assert (first["total"], numbers) == (9, list(range(len(numbers))))


async def test_a_failure_names_kind_and_line_of_the_tenants_source():
    sandbox = FakeSandbox(verdicts=[Failed(kind="exception", message="NameError: answr", line=2)], prints="got here\n")
    answer = await Lab(lambda: GraderPool(sandbox=sandbox)).run(order({"type": "python", "source": PYTHON}))
    error = answer["results"][0]["outcomes"][0]["error"]
    assert (error["kind"], error["line"], answer["printed"]) == ("exception", 2, "got here\n")


async def test_a_reward_that_changes_its_mind_is_seen_by_asking_it_again():
    sandbox = FakeSandbox(verdicts=[Graded(reward=1.0), Graded(reward=0.0)])
    answer = await Lab(lambda: GraderPool(sandbox=sandbox)).run(order({"type": "python", "source": PYTHON}, repeats=2))
    assert [outcome["reward"] for outcome in answer["results"][0]["outcomes"]] == [1.0, 0.0]


async def test_the_corpus_is_graded_with_the_columns_that_the_reward_reads():
    answer = await Lab(GraderPool).run(order({"type": "numeric", "reference": "{{item.solution}}"}, (), corpus=["number"]))
    found = answer["results"][0]
    assert answer["total"] == len(all_cases(["number"])) > 80
    assert (found["case"]["right"], found["outcomes"][0]["error"]) == (False, None)


async def test_columns_that_a_python_reward_reads_are_filled_too():
    sandbox = FakeSandbox(verdicts=[Graded(reward=1.0)])
    source = "def grade(sample, item):\n    return item['gold'] == item.get(\"problem\", '')\n"
    await Lab(lambda: GraderPool(sandbox=sandbox), clock=ticking()).run(order({"type": "python", "source": source}, (), corpus=["text"]))
    item = sandbox.items[0]["item"]
    assert (item["gold"], item["problem"]) == (item["answer"], item["question"])


class Hanging(FakeSandbox):
    """Answers when ``released``."""

    def __init__(self) -> None:
        super().__init__(verdicts=[Graded(reward=1.0)])
        self.asked, self.released, self.closed = asyncio.Event(), asyncio.Event(), False

    async def grade(self, *given: Any) -> Any:
        self.asked.set()
        await self.released.wait()
        return await super().grade(*given)

    async def close(self) -> None:
        self.closed = True


async def test_a_case_that_takes_too_long_is_cut_off_and_the_others_are_graded():
    hanging = Hanging()
    answer = await Lab(lambda: GraderPool(sandbox=hanging)).run(order({"type": "python", "source": PYTHON}, case_seconds=0.01))
    assert [result["cut_off"] for result in answer["results"]] == [True]


async def test_a_tenants_second_order_at_once_is_told_to_come_again_and_another_tenants_is_not():
    hanging = Hanging()
    lab = Lab(lambda: GraderPool(sandbox=hanging))
    first = asyncio.create_task(lab.run(order({"type": "python", "source": PYTHON})))
    await hanging.asked.wait()
    assert (await lab.run(order()))["busy"]
    assert not (await lab.run(order(tenant="other")))["busy"]
    hanging.released.set()
    assert len((await first)["results"]) == 1
    assert not (await lab.run(order()))["busy"]


async def test_a_stopped_run_lets_go_at_once_and_its_tenant_goes_on():
    hanging = Hanging()
    lab = Lab(lambda: GraderPool(sandbox=hanging))
    stopped = asyncio.create_task(lab.run(order({"type": "python", "source": PYTHON}, run="lr_1")))
    await hanging.asked.wait()
    assert not lab.stop("lr_2")
    assert lab.stop("lr_1")
    assert (await stopped)["results"] == []
    assert not (await lab.run(order()))["busy"]


async def test_a_stopped_run_is_answered_with_what_is_done():
    class HangsLater(Hanging):
        async def grade(self, *given: Any) -> Any:
            if self.keys:
                return await super().grade(*given)
            return await FakeSandbox.grade(self, *given)

    hanging = HangsLater()
    lab = Lab(lambda: GraderPool(sandbox=hanging))
    stopped = asyncio.create_task(lab.run(order({"type": "python", "source": PYTHON}, texts=("42", "41"), run="lr_1")))
    await hanging.asked.wait()
    lab.stop("lr_1")
    assert [(result["number"], result["outcomes"][0]["reward"]) for result in (await stopped)["results"]] == [(0, 1.0)]


async def test_a_lab_that_nobody_uses_gives_its_processes_back():
    hanging = Hanging()
    hanging.released.set()
    lab = Lab(lambda: GraderPool(sandbox=hanging), idle_seconds=0.0)
    await lab.run(order({"type": "python", "source": PYTHON}))
    async with asyncio.timeout(5):
        while not hanging.closed:
            await asyncio.sleep(0)


@pytest.mark.engine
async def test_the_real_sandbox_tells_the_line_of_a_planted_bug_and_what_it_printed():
    source = "def grade(sample, item):\n    print('looking at', item['answer'])\n    return 1.0 if sample['text'] == '42' else 0.0\n"
    lab = Lab(lambda: GraderPool(sandbox=Sandbox()))
    try:
        answer = await lab.run(order({"type": "python", "source": source}, repeats=2))
    finally:
        await lab.close()
    errors = [outcome["error"] for outcome in answer["results"][0]["outcomes"]]
    assert [(error["kind"], error["line"]) for error in errors] == [("exception", 3)] * 2
    assert "KeyError" in errors[0]["message"]
    assert "looking at 42" in answer["printed"]


@pytest.mark.engine
async def test_the_real_sandbox_shows_what_a_substring_reward_accepts_wrongly():
    source = "def grade(sample, item):\n    return 1.0 if item['answer'] in sample['output_text'] else 0.0\n"
    lab = Lab(lambda: GraderPool(sandbox=Sandbox()))
    try:
        results = (await lab.run(order({"type": "python", "source": source}, (), corpus=["number"], begin_seconds=10)))["results"]
    finally:
        await lab.close()
    wrong = {r["case"]["kind"] for r in results if r["outcomes"][0]["reward"] == 1.0 and not r["case"]["right"]}
    assert {"shotgun", "negation", "contradiction"} <= wrong
