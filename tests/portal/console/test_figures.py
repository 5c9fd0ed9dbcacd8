from __future__ import annotations

import pytest

from portal.console import figures
from portal.console.recent import Step, lanes, served


def step(
    job: str = "a", version: int = 1, committed: float = 10.0, *, tenant: str = "t", submitted: float = 0.0, **lanes: tuple[float, float]
) -> Step:
    return Step(
        **{"pk": version, "job": job, "tenant": tenant, "name": job, "version": version, "committed": committed, "submitted": submitted},
        lanes=tuple((lane, *span) for lane, span in lanes.items()),
        tokens=100,
    )


def test_bars_that_touch_are_one() -> None:
    assert figures.merged([(5, 6), (0, 2), (2, 3)]) == [(0, 3), (5, 6)]
    assert figures.merged([(0, 2), (2.4, 3)], gap=0.5) == [(0, 3)]


def test_a_share_counts_overlapping_work_once() -> None:
    assert figures.busy_share([(0, 4), (2, 6), (-5, 1), (9, 20)], 0, 10) == pytest.approx(0.7)


def test_the_timeline_holds_what_goes_on_and_cuts_what_lies_before() -> None:
    drawn = figures.gantt([step(rollout=(80, 120), train=(121, 122))], [("b", "rollout", 190)], since=100, until=200)
    assert drawn == {"a": {"rollout": [[0, 20]], "train": [[21, 22]]}, "b": {"rollout": [[90, 100]]}}


def test_a_job_that_did_nothing_in_the_window_has_no_line() -> None:
    assert figures.gantt([step(rollout=(0, 10))], [], since=100, until=200) == {}


def test_ten_thousand_short_steps_stay_few_bars() -> None:
    many = [step(version=n, rollout=(n / 20, n / 20 + 0.04)) for n in range(10_000)]
    assert len(figures.gantt(many, [], since=0, until=500)["a"]["rollout"]) <= 1200


def test_first_steps_count_from_submission_and_paces_from_commit_to_commit() -> None:
    steps = [step("a", 1, 10, submitted=4), step("b", 3, 11), step("a", 2, 13), step("b", 4, 12), step("b", 6, 20)]
    assert figures.first_steps(steps) == [6]
    assert sorted(figures.paces(steps)) == [1, 3]  # b's fifth step is not known, so nothing is said of its sixth


def test_a_distribution_counts_every_value_once() -> None:
    told = figures.distribution([0.1, 1.0, 10.0, 100.0])
    assert (told["count"], told["p50"], sum(bin["rows"] for bin in told["bins"])) == (4, 5.5, 4)
    assert figures.distribution([2.0, 2.0])["bins"] == [{"from": 2.0, "to": 2.0, "rows": 2}]
    assert figures.distribution([])["p50"] is None


def test_fairness_sets_what_was_served_against_what_is_due() -> None:
    rows = {row["tenant"]: row for row in figures.fairness({"a": 300, "gone": 100}, {"a": 1.0, "b": 3.0})}
    assert (rows["a"]["served"], rows["a"]["due"]) == (0.75, 0.25)
    assert (rows["b"]["served"], rows["b"]["due"], rows["gone"]["due"]) == (0.0, 0.75, None)


def test_lanes_of_a_step_put_environment_and_reward_at_the_rollouts_end() -> None:
    spans = [
        {"phase": "rollout", "start": 10, "end": 20},
        {"phase": "train", "start": 21, "end": 22},
        {"phase": "commit", "start": 22, "end": 23},
    ]
    assert list(lanes(spans, {"env": 3.0, "reward": 1.0})) == [("rollout", 10, 20), ("env", 16, 20), ("train", 21, 23)]


@pytest.mark.parametrize("broken", [None, "x", [], [1], [{"phase": "train", "start": 0, "end": 1}]])
def test_a_step_of_another_shape_breaks_nothing(broken: object) -> None:
    assert [lane for lane, _, _ in lanes(broken, None)] in ([], ["train"])
    assert served(broken) == 0
