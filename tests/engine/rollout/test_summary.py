from __future__ import annotations

import pytest

from engine.rollout.episodes import Played
from engine.rollout.summary import eval_data, rollout_summary
from engine.trajectory import ToolCall, Trajectory, Turn


def played(
    reward: float | None,
    *,
    length: int = 2,
    sampling=((0.0, 5.0),),
    acting=(),
    grading: tuple[float, float] = (5.0, 5.5),
    turns=(),
    applies: bool = True,
) -> Played:
    """``applies``: whether a missing reward is a grading that failed, rather than a grader that had nothing to say."""
    trajectory = Trajectory(
        job="a",
        policy_version=0,
        attempt=1,
        load_id=1,
        row=0,
        sample=0,
        seed=0,
        prompt_ids=[1, 2, 3],
        completion_ids=[4] * length,
        logprobs=[-1.0] * length,
        text="",
        finish_reason="length" if length == 8 else "stop",
        reward=reward,
        turns=list(turns),
        invalid="timeout" if reward is None and applies else None,
    )
    return Played(trajectory=trajectory, cached_tokens=1, judge_tokens=5, sampling=list(sampling), acting=list(acting), grading=grading)


def test_groups_are_counted_all_right_and_all_wrong_only_when_every_grade_is():
    rewards = [1.0, 1.0, 0.0, 0.0, 1.0, 0.0, None, 1.0]
    summary = rollout_summary([played(r) for r in rewards], group_size=2, started_at=0.0)

    assert (summary.groups, summary.groups_all_right, summary.groups_all_wrong, summary.invalid) == (4, 1, 1, 1)


def test_rewards_are_over_the_valid_gradings():
    summary = rollout_summary([played(r) for r in (1.0, 0.0, None)], group_size=3, started_at=0.0)

    assert (summary.reward_mean, summary.reward_std, summary.reward_min, summary.reward_max) == (0.5, 0.5, 0.0, 1.0)


def test_a_grader_that_does_not_apply_has_not_failed():
    summary = rollout_summary([played(None, applies=False), played(None)], group_size=2, started_at=0.0)
    assert summary.invalid == 1


def test_a_batch_without_any_valid_grade_has_no_reward_rather_than_0():
    summary = rollout_summary([played(None), played(None)], group_size=2, started_at=0.0)

    assert (summary.reward_mean, summary.reward_std, summary.reward_min, summary.reward_max) == (None, None, None, None)
    assert (summary.invalid, summary.groups_all_right, summary.groups_all_wrong) == (2, 0, 0)
    assert eval_data([played(None)], version=1, temperature=0.0, seconds=1.0).reward_mean is None


def test_tokens_and_lengths_are_counted():
    summary = rollout_summary([played(1.0, length=2), played(1.0, length=8)], group_size=2, started_at=0.0)

    assert (summary.prompt_tokens, summary.sampled_tokens, summary.cached_tokens) == (6, 10, 2)
    assert (summary.length_mean, summary.length_max, summary.truncated) == (5.0, 8, 1)
    assert summary.finish_reasons == {"stop": 1, "length": 1}


def test_tokens_of_judges_are_counted_in_rollouts_and_evaluations():
    batch = [played(1.0), played(0.0)]

    assert rollout_summary(batch, group_size=2, started_at=0.0).judge_tokens == 10
    assert eval_data(batch, version=1, temperature=0.0, seconds=1.0).judge_tokens == 10


def test_the_phases_add_up_to_the_time_of_the_batch():
    slow_tool = played(1.0, sampling=[(1.5, 3.0)], acting=[(3.0, 6.5)], grading=(6.5, 7.0))
    summary = rollout_summary([slow_tool, played(1.0, sampling=[(1.5, 5.0)])], group_size=2, started_at=1.0)

    assert (summary.rollout_seconds, summary.env_seconds, summary.reward_seconds) == pytest.approx((4.0, 1.5, 0.5))


def test_tools_count_as_environment_only_while_nothing_of_the_batch_is_sampled():
    turns = played(1.0, sampling=[(0.0, 1.0), (4.0, 5.0)], acting=[(1.0, 4.0)], grading=(5.0, 5.0))
    other = played(1.0, sampling=[(0.0, 2.0)], grading=(2.0, 3.0))

    alone, both = (rollout_summary(batch, group_size=1, started_at=0.0) for batch in ([turns], [turns, other]))

    assert (alone.rollout_seconds, alone.env_seconds, alone.reward_seconds) == (2.0, 3.0, 0.0)
    assert (both.rollout_seconds, both.env_seconds, both.reward_seconds) == (3.0, 2.0, 0.0)


def test_what_the_environment_added_is_no_sampled_token():
    turns = [Turn(sampled=3, added=4, text=""), Turn(sampled=1, added=0, text="")]
    summary = rollout_summary([played(1.0, length=8, turns=turns), played(1.0)], group_size=2, started_at=0.0)

    assert (summary.sampled_tokens, summary.env_tokens, summary.turns_mean, summary.length_max) == (6, 4, 1.5, 4)


def test_tool_calls_are_counted_and_their_failures_by_kind():
    errors = (None, "timeout", "timeout", "bad_call")
    calls = [ToolCall(tool="search", argument="a", answer="b", seconds=0.5, error=error) for error in errors]
    turns = [Turn(sampled=1, added=1, text="", call=call) for call in calls]
    summary = rollout_summary([played(1.0, turns=turns), played(1.0)], group_size=2, started_at=0.0)

    assert (summary.tool_calls, summary.tool_seconds) == (4, 2.0)
    assert summary.tool_failures == {"timeout": 2, "bad_call": 1}


def test_an_evaluation_is_summarised_over_its_valid_grades():
    data = eval_data([played(1.0), played(0.0), played(None)], version=4, temperature=0.0, seconds=2.0)

    assert (data.version, data.rows, data.reward_mean, data.invalid, data.sampled_tokens) == (4, 3, 0.5, 1, 6)
