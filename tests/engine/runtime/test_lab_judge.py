from __future__ import annotations

import pytest

from engine.errors import NotReady
from engine.grader_spec import parse_grader
from engine.ports import PortError
from engine.rewards.pool import GraderPool
from engine.runtime.lab_judge import ManagersJudge

INPUT = [{"role": "user", "content": "Right is {{item.answer}}. Grade: {{sample.output_text}}"}]
GRADER = parse_grader({"type": "score_model", "model": "base", "input": INPUT})


async def graded(ask):
    return await GraderPool(judges={"base": ManagersJudge(ask)}).grade(GRADER, "42", {"answer": "42"}, owner="ten_a/lab")


async def test_a_trial_is_judged_by_the_base_model_over_the_manager(world):
    result = await graded(world.manager.judge)

    assert (result.reward, result.judge_tokens) == (1.0, 2)


@pytest.mark.parametrize(("attribution", "asked"), [("platform", 2), ("user", 1)])
async def test_a_verdict_that_failed_is_invalid_and_asked_again_where_that_may_help(world, attribution, asked):
    world.script.fail("judge", "ten_a/lab", error=PortError("no verdict", attribution=attribution), times=2)
    result = await graded(world.manager.judge)

    assert (result.reward, result.kind) == (None, "judge")
    assert "no verdict" in result.invalid
    assert len(world.script._failures["judge", "ten_a/lab", None]) == 2 - asked


async def test_a_manager_that_is_away_is_no_zero():
    async def away(question):
        raise NotReady("restarting the manager…")

    result = await graded(away)

    assert (result.reward, result.kind) == (None, "judge")
    assert "restarting the manager" in result.invalid
