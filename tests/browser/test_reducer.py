"""The run page's reducer, alone: a pure function of numbered events, tried in the browser that it runs in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.stack]
AT = "2026-01-01T00:00:{:02d}Z"


def event(seq: int, kind: str, **data: Any) -> dict[str, Any]:
    return {"seq": seq, "kind": kind, "at": AT.format(seq), "data": data}


def step(seq: int, version: int, reward: float | None = 0.5) -> dict[str, Any]:
    return event(
        seq,
        "step",
        step=version,
        version=version,
        rollout={"reward_mean": reward, "reward_std": reward and 0.0},
        tokens={"prefill": 1, "sampled": 2, "trained": 3},
    )


ACCEPTED = event(1, "accepted", submitted_at=AT.format(0))


@pytest.fixture
def absorb(visit: Callable[..., Page]) -> Iterator[Callable[..., Any]]:
    """``absorb([events], [events], …)`` → the state after these batches, with ``gaps`` and what is derived."""
    page = visit("/")

    def run(*batches: list[dict[str, Any]]) -> Any:
        return page.evaluate(
            """async (batches) => {
              const { rewardPoints } = await import("/static/js/run-charts.js");
              const { absorb, derive, initial, overrule, phaseText } = await import("/static/js/run-state.js");
              let state = initial({ steps: 10 });
              const gaps = batches.map((batch) => {
                const answer = absorb(state, batch);
                state = answer.state;
                return answer.gap;
              });
              const settled = overrule(state, { state: "failed", state_reason: "refused", last_seq: 0, ended_at: null });
              const shown = { derived: derive(state), text: phaseText(state), points: rewardPoints(state) };
              return { ...state, ...shown, gaps, settled: settled.state };
            }""",
            list(batches),
        )

    yield run


def test_the_same_event_twice_counts_once(absorb: Callable[..., Any]) -> None:
    state = absorb([ACCEPTED, step(2, 1)], [ACCEPTED, step(2, 1), step(3, 2)])
    assert [s["version"] for s in state["steps"]] == [1, 2]
    assert state["seq"] == 3


def test_a_jump_in_the_numbers_stops_before_it(absorb: Callable[..., Any]) -> None:
    state = absorb([ACCEPTED, step(3, 2)])
    assert state["gaps"] == [True]
    assert (state["seq"], state["steps"]) == (1, [])


def test_batches_of_any_size_give_the_same_state(absorb: Callable[..., Any]) -> None:
    events = [ACCEPTED, event(2, "admitted"), event(3, "rollout_started", version=0, attempt=1), step(4, 1), event(5, "new_kind", x=1)]
    whole, parts = absorb(events), absorb(*([one] for one in events))
    assert {**whole, "gaps": None} == {**parts, "gaps": None}


def test_an_unknown_kind_is_logged_and_changes_nothing_else(absorb: Callable[..., Any]) -> None:
    before, after = absorb([ACCEPTED]), absorb([ACCEPTED, event(2, "from_the_future", x=1)])
    assert after["log"][-1]["kind"] == "from_the_future"
    assert {**before, "log": 0, "seq": 0, "gaps": 0} == {**after, "log": 0, "seq": 0, "gaps": 0}


def test_behind_the_last_step_only_evaluations_are_still_to_come(absorb: Callable[..., Any]) -> None:
    steps = [step(number + 1, number) for number in range(1, 11)]
    assert [absorb([ACCEPTED, *steps[:done]])["text"]["title"] for done in (9, 10)] == ["Committed", "Evaluating"]


def test_waiting_says_why_and_in_which_place(absorb: Callable[..., Any]) -> None:
    state = absorb([ACCEPTED, event(2, "waiting", reason="all places are taken", position=3)])
    assert state["text"] == {"title": "Waiting", "why": "All places are taken. Place 3 in the queue."}


@pytest.mark.parametrize(
    ("forecast", "said"),
    [
        ({"next_seconds": 40.0, "eta_seconds": 130.5}, r"Full\. Goes on about \d\d:\d\d:\d\d and ends about \d\d:\d\d:\d\d\."),
        ({"next_seconds": 40.0, "eta_seconds": None}, r"Full\. Goes on about \d\d:\d\d:\d\d\."),
        ({"next_seconds": None, "eta_seconds": None}, r"Full\."),
    ],
)
def test_waiting_says_when_it_goes_on_as_far_as_the_engine_knows(absorb: Callable[..., Any], forecast: Any, said: str) -> None:
    state = absorb([ACCEPTED, event(2, "waiting", reason="full", position=None, **forecast)])
    assert re.fullmatch(said, state["text"]["why"])


def test_the_state_follows_the_portals_table(absorb: Callable[..., Any]) -> None:
    events = [ACCEPTED, event(2, "admitted"), event(3, "paused", version=0), event(4, "resumed", version=0)]
    assert [absorb(events[:n])["state"] for n in (1, 2, 3, 4)] == ["queued", "running", "paused", "queued"]


def test_pace_and_time_left_come_from_the_commits(absorb: Callable[..., Any]) -> None:
    state = absorb([ACCEPTED, step(2, 1), step(4 - 1, 2), step(4, 3)])
    assert state["derived"]["ttfsSeconds"] == 2
    assert state["derived"]["tptsSeconds"] == 1
    assert state["derived"]["etaSeconds"] == 7


def test_an_ending_without_an_event_is_taken_from_the_history(absorb: Callable[..., Any]) -> None:
    assert absorb([])["settled"] == "failed"


def test_a_step_without_a_reward_is_no_zero(absorb: Callable[..., Any]) -> None:
    state = absorb([ACCEPTED, step(2, 1, 0.8), step(3, 2, None)])
    assert state["derived"]["rewardNow"] == 0.8
    assert [point["y"] for point in state["points"]] == [[0.8, 0.8, 0.8, None], [None, None, None, None]]


def test_durations_on_an_axis_are_short(visit: Callable[..., Page]) -> None:
    told = visit("/").evaluate(
        """async () => {
          const { shortDuration } = await import("/static/js/format.js");
          return [0, 0.5, 45, 80, 3599, 7500].map(shortDuration);
        }"""
    )
    assert told == ["0 s", "0.5 s", "45 s", "1m20", "59m59", "2h05"]


def test_a_warning_stands_for_some_steps_and_not_over_a_run_that_has_ended(visit: Callable[..., Page]) -> None:
    shown = visit("/").evaluate(
        """async () => {
          const { standingWarnings } = await import("/static/js/run-state.js");
          const said = [["alone", null], ["old", 3], ["new", 18], ["rollout_lost", 19], ["train_lost", 20]];
          const warnings = said.map(([code, version]) => ({ code, version }));
          const codes = (state) => standingWarnings({ warnings, version: 20, ended: null, ...state }).map(({ code }) => code);
          return [codes({}), codes({ ended: { at: "2026-01-01T00:00:00Z" } })];
        }"""
    )
    assert shown == [["alone", "new", "train_lost"], []]


def test_warnings_of_one_kind_are_shown_once_with_their_number(visit: Callable[..., Page]) -> None:
    told = visit("/").evaluate(
        """async () => {
          const { latestWarnings } = await import("/static/js/run-state.js");
          const said = [["no_signal", "step 1"], ["nonfinite", "step 2"], ["no_signal", "step 3"]];
          return latestWarnings(said.map(([code, message]) => ({ code, message }))).map((w) => [w.message, w.times]);
        }"""
    )
    assert told == [["step 2", 1], ["step 3", 2]]


def test_findings_stand_until_they_are_over(visit: Callable[..., Page]) -> None:
    told = visit("/").evaluate(
        """async (batches) => {
          const { absorb, initial } = await import("/static/js/run-state.js");
          let state = initial({ steps: 10 });
          return batches.map((batch) => [...(state = absorb(state, batch).state).findings.keys()]);
        }""",
        [
            [ACCEPTED, event(2, "finding", code="truncation"), event(3, "finding", code="plateau")],
            [event(4, "finding_over", code="truncation")],
            [event(4, "finding_over", code="truncation")],
        ],
    )
    assert told == [["truncation", "plateau"], ["plateau"], ["plateau"]]


COMPARED = {"against": 0, "rows": 96, "wins": 20, "losses": 4, "ties": 72, "verdict": "better by 16.7 points (8.1 to 25.0)"}


@pytest.mark.parametrize(
    ("evals", "rows", "verdict", "best", "last"),
    [
        ([], 96, "Not measured yet", None, None),
        ([], 0, "Nobody can tell", None, None),
        ([{"version": 0, "rows": 96, "reward_mean": 0.5}], 96, "Begins at 0.500", None, None),
        (
            [{"version": 0, "rows": 96, "reward_mean": 0.5}, {"version": 10, "rows": 96, "reward_mean": 0.7, "comparison": COMPARED}],
            96,
            "Better by 16.7 points (8.1 to 25.0)",
            10,
            10,
        ),
        (
            [{"version": 0, "rows": 9, "reward_mean": 0.7}, {"version": 10, "rows": 9, "reward_mean": 0.7}],
            9,
            "Held-out reward 0.700",
            0,
            None,
        ),
        (
            [{"version": 0, "rows": 9, "reward_mean": 0.7}, {"version": 10, "rows": 9, "reward_mean": None}],
            9,
            "Not measured",
            0,
            None,
        ),
    ],
)
def test_the_run_page_says_whether_it_got_better(
    visit: Callable[..., Page], evals: list[dict], rows: int, verdict: str, best: int | None, last: int | None
) -> None:
    told = visit("/").evaluate(
        """async ([evals, rows]) => (await import("/static/js/run-evaluation.js")).evaluationText({ evals }, rows)""", [evals, rows]
    )
    assert (told["verdict"], told["best"], told["last"]) == (verdict, best, last)


def test_a_step_without_an_update_is_told_and_the_tokens_of_evaluations_are_counted(absorb: Callable[..., Any]) -> None:
    idle = step(2, 1)
    idle["data"]["skipped"] = "no_signal"
    evaluation = event(4, "eval", version=2, sampled_tokens=5, reward_mean=0.5)
    derived = absorb([ACCEPTED, idle, step(3, 2), evaluation])["derived"]
    assert (derived["idleSteps"], derived["tokens"]["sampled"], derived["tokens"]["evaluated"]) == (1, 2 + 2 + 5, 5)
