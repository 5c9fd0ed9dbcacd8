from __future__ import annotations

import pytest

from engine.probe_forecast import RowProbe, Took, by_group_size, forecast, quantile
from engine.probe_pace import StepPace
from engine.spec import JobSpec, parse_job

TOOK = Took(seconds=4.0, longest_seconds=0.5)


def spec(*, prompts: int = 4, group: int = 4, steps: int = 10) -> JobSpec:
    rollout = {"prompts_per_step": prompts, "group_size": group}
    dataset = {"version": "1", "train": {"sha256": "0" * 64, "bytes": 0}, "train_rows": 64}
    return parse_job({"base_model": "m", "dataset": dataset, "grader": {"type": "numeric"}, "rollout": rollout, "train": {"steps": steps}})


def row(*rewards: float | None, length: int = 5, truncated: int = 0, judge: int = 0, prompt: int = 10, added: int = 0) -> RowProbe:
    return RowProbe(
        row=0,
        prompt_tokens=prompt,
        rewards=rewards,
        lengths=(length,) * len(rewards),
        truncated=truncated,
        invalid=tuple("row 0: no number" for reward in rewards if reward is None),
        judge_tokens=judge,
        added_tokens=added,
    )


RIGHT, WRONG, HALF = (1.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 0.0), (1.0, 0.0, 1.0, 0.0)


def told(*rows: RowProbe, pace: StepPace | None = None, **job: int):
    return forecast(spec(**job), rows, TOOK, pace or StepPace())


def test_groups_without_signal_are_split_into_all_right_and_all_wrong():
    signal = told(row(*RIGHT), row(*WRONG), row(*WRONG), row(*HALF))["zero_signal"]

    assert (signal["share"], signal["all_right"], signal["all_wrong"]) == (0.75, 0.25, 0.5)
    assert signal["low"] < 0.75 < signal["high"]


def test_pass_rate_and_reward_are_over_what_could_be_graded():
    found = told(row(1.0, None, 0.0, None), row(None, None, None, None))

    assert (found["pass_rate"]["mean"], found["reward"]["mean"], found["invalid"]["count"]) == (0.5, 0.5, 6)
    assert (found["invalid"]["share"], found["invalid"]["first"][0]) == (0.75, "row 0: no number")


def test_without_any_grade_there_is_no_rate():
    found = told(row(None, None, None, None))

    assert (found["pass_rate"], found["reward"], found["zero_signal"]["share"]) == (None, None, 1.0)


def test_a_steps_tokens_are_those_of_its_prompts_and_groups():
    found = told(row(*HALF, prompt=10, judge=100, added=8), row(*RIGHT, prompt=20), prompts=4)

    assert found["step"]["tokens"] == {"prefill": 4 * 64, "sampled": 4 * 20, "judge": 200, "trained": 4 * 10}
    assert found["job"]["tokens"]["sampled"] == 800


def test_time_is_the_probes_own_scaled_to_a_step_and_no_shorter_than_its_longest_row():
    rows = [row(*HALF)] * 8
    assert told(*rows, prompts=4)["step"]["seconds"]["rollout"] == 2.0
    assert told(*rows, prompts=1)["step"]["seconds"]["rollout"] == 0.5


def test_a_jobs_time_needs_the_trainers_pace():
    pace = StepPace(train_seconds_per_token=0.01, commit_seconds=0.1, wait_seconds=0.2)
    found = told(*[row(*HALF)] * 8, pace=pace, steps=10)

    assert found["step"]["seconds"] == {"rollout": 2.0, "train": pytest.approx(0.8), "commit": 0.1, "waiting": 0.2}
    assert found["job"]["seconds"] == pytest.approx(31.0)
    assert told(row(*HALF))["job"]["seconds"] is None


def test_smaller_groups_are_counted_and_larger_ones_estimated():
    sizes = {size["group_size"]: size for size in by_group_size([row(*HALF), row(1.0, 1.0, 1.0, 0.0)])}

    assert (sizes[2]["share"], sizes[2]["method"]) == (pytest.approx((1 / 3 + 1 / 2) / 2), "u_statistic")
    assert sizes[8]["method"] == "beta_binomial" and sizes[64]["share"] < sizes[8]["share"] < sizes[4]["share"] + 0.2


def test_rewards_of_more_values_than_two_are_not_carried_on_to_larger_groups():
    assert [size["group_size"] for size in by_group_size([row(0.5, 0.25, 1.0, 0.0)])] == [2, 4]


def test_lengths_have_their_spread_and_the_share_that_was_cut():
    lengths = told(row(*HALF, length=2), row(*HALF, length=8, truncated=4))["lengths"]

    assert (lengths["mean"], lengths["median"], lengths["p90"], lengths["max"]) == (5.0, 2, 8, 8)
    assert lengths["truncated"]["mean"] == 0.5


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 2), (0.9, 4), (1.0, 4)])
def test_a_quantile_is_a_value_that_occurred(share, value):
    assert quantile([1, 2, 3, 4], share) == value


def test_a_pace_forgets_and_does_not_learn_from_steps_without_an_update():
    pace, step = StepPace(), {"seconds": {"train": 2.0, "commit": 0.1, "wait_rollout": 0.3, "wait_train": 0.2}, "tokens": {"trained": 100}}
    pace.observe(step)
    pace.observe({**step, "tokens": {"trained": 0}})
    first = (pace.train_seconds_per_token, pace.commit_seconds, pace.wait_seconds)
    pace.observe({**step, "tokens": {"trained": 200}})

    assert first == (0.02, 0.1, 0.5)
    assert pace.train_seconds_per_token == pytest.approx(0.02 + 0.3 * (0.01 - 0.02))
