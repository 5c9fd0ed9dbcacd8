"""The Lab's services against the engine's own Lab: what is tried, what is kept, what goes wrong."""

from __future__ import annotations

import itertools
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from engine.rewards.corpus import all_cases
from engine.rewards.sandbox import Failed, Graded
from portal.errors import Conflict, Invalid
from portal.rewards import lab, lessons
from portal.rewards.figures import by_kind, figures, lines_of, source_errors
from portal.rewards.models import LabRun
from portal.rewards.trial import parse_trial
from tenants.access import Forbidden
from tests.portal.fake_engine import FakeEngine
from tests.portal.rewards.trials import CORPUS, PYTHON, SOURCE, SUBSTRING, Scripted, rows, typed
from tests.portal.world import World

NUMERIC = {"type": "numeric"}


def now() -> datetime:
    return datetime.now(UTC)


def begin(world: World, trial: dict[str, Any], grader: Any = NUMERIC, **more: Any) -> LabRun:
    return lab.begin_run(world.sums, more.pop("user", world.alice), grader, parse_trial(trial), now(), **more)


def rewards(run: LabRun) -> list[float | None]:
    return [case.result["outcomes"][0]["reward"] for case in run.cases.all()]


def slowly(engine: FakeEngine) -> None:
    """One case a call: the clock is past the time to begin with the second look at it."""
    engine.lab_clock = lambda steps=itertools.count(): next(steps) * 0.4  # noqa: B008


def test_one_answer_is_graded_when_the_page_comes_back(world: World) -> None:
    run = begin(world, typed("It is 42."))
    assert (run.state, run.done, run.total, rewards(run)) == ("succeeded", 1, 1, [1.0])


def test_rows_are_graded_with_a_columns_answers(world: World) -> None:
    run = begin(world, rows(world.dataset()))
    assert rewards(run) == [1.0, 1.0, 1.0]
    assert [case.case["item"]["answer"] for case in run.cases.all()] == [case.case["text"] for case in run.cases.all()]


def test_the_same_seed_takes_the_same_rows_and_another_seed_others(world: World) -> None:
    dataset = world.dataset()
    taken = [
        [case.case["row"] for case in begin(world, rows(dataset, pick="random", count=10, seed=seed)).cases.all()] for seed in (1, 1, 2)
    ]
    assert taken[0] == taken[1] != taken[2]
    assert len(set(taken[0])) == 10


def test_all_rows_of_a_split_are_found_at_random_and_none_of_the_other(world: World) -> None:
    dataset = world.dataset()
    run = begin(world, rows(dataset, pick="random", count=500, split="eval"))
    assert run.total == dataset.eval_rows
    wanted = [case.case["row"] for case in run.cases.all()]
    again = begin(world, rows(dataset, pick="numbers", split="eval", numbers=wanted[:2]))
    assert [case.case["row"] for case in again.cases.all()] == wanted[:2]
    with pytest.raises(Invalid, match="is none of the training rows"):
        begin(world, rows(dataset, pick="numbers", numbers=wanted[:1]))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"column": "solution"}, "on.column"),
        ({"dataset": "ds_gone"}, "on.dataset"),
        ({"count": 0}, "on.count"),
        ({"count": 501}, "on.count"),
        ({"output_text": "42"}, "on.output_text"),
        ({"pick": "numbers"}, "on.numbers"),
        ({"pick": "numbers", "numbers": [10**9]}, "on.numbers"),
        ({"speed": 1}, "on.speed"),
        ({"type": "guess"}, "on.type"),
    ],
)
def test_a_bad_trial_is_refused_with_its_field(world: World, change: dict[str, Any], field: str) -> None:
    trial = rows(world.dataset())
    trial["on"] |= change
    with pytest.raises(Invalid) as refused:
        begin(world, trial)
    assert field in dict(refused.value.problems)
    assert not LabRun.objects.exists()


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b"])
def test_what_no_database_takes_is_refused(world: World, text: str) -> None:
    with pytest.raises(Invalid):
        begin(world, typed(text))


def test_a_strangers_dataset_is_not_there(world: World) -> None:
    with pytest.raises(Invalid, match="there is no dataset"):
        begin(world, rows(world.dataset(world.charlie)))


def test_a_viewer_may_not_run(world: World) -> None:
    with pytest.raises(Forbidden):
        begin(world, typed(), user=world.vera)


def test_a_planted_bug_is_shown_at_its_line(world: World, engine: FakeEngine) -> None:
    engine.sandbox = Scripted(Failed(kind="exception", message="KeyError: 'text'", line=2), prints="hello")
    run = begin(world, typed(), PYTHON)
    (error,) = source_errors(lines_of(run.cases.all(), "python"), lab.sources_of(run.grader))
    assert (error.line, error.text, error.cases, run.printed) == (2, SOURCE.split("\n")[1].strip(), 1, "hello")
    assert "KeyError" in error.message


def test_a_part_of_a_combination_is_named_with_its_line(world: World, engine: FakeEngine) -> None:
    engine.sandbox = Scripted(Failed(kind="exception", message="boom", line=2))
    both = {"type": "multi", "graders": {"right": NUMERIC, "style": PYTHON}, "calculate_output": "right + style"}
    run = begin(world, typed(), both)
    (error,) = source_errors(lines_of(run.cases.all(), "multi"), lab.sources_of(run.grader))
    assert (error.part, error.line) == ("style", 2)


def test_a_reward_that_changes_its_mind_is_caught(world: World, engine: FakeEngine) -> None:
    engine.sandbox = Scripted(Graded(reward=1.0), Graded(reward=0.0))
    run = begin(world, typed(repeats=2), PYTHON)
    found = figures(lines_of(run.cases.all(), "python"))
    assert (found.differing, found.graded, found.mean) == (1, 1, 1.0)


def test_a_substring_reward_is_shown_where_it_pays_wrongly(world: World) -> None:
    run = begin(world, CORPUS, SUBSTRING)
    kinds = {(kind.group, kind.kind): kind for kind in by_kind(lines_of(run.cases.all(), "string_check"), 1.0)}
    assert run.total >= 80
    assert kinds["exploit", "shotgun"].false_accepts
    assert kinds["exploit", "negation"].faults[0][0].startswith("A text that says it is not the answer is paid")
    assert kinds["equivalence", "spelled numbers"].false_rejects
    assert not kinds["exploit", "empty"].false_accepts


def test_each_kind_of_exploit_teaches_something_of_its_own() -> None:
    kinds = {case.kind for case in all_cases() if case.group == "exploit"}
    assert len({lessons.false_accept("exploit", kind) for kind in kinds}) == len(kinds)


def test_the_corpus_asks_a_reward_what_it_is_made_for(world: World) -> None:
    run = begin(world, CORPUS)
    assert run.on["topics"] == ["number"]
    assert all(not kind.false_accepts and not kind.false_rejects for kind in by_kind(lines_of(run.cases.all(), "numeric"), 1.0))


def test_a_long_run_goes_on_in_slices_without_gap_or_repeat(
    world: World, engine: FakeEngine, django_capture_on_commit_callbacks: Any
) -> None:
    slowly(engine)
    with django_capture_on_commit_callbacks(execute=True):
        run = begin(world, rows(world.dataset(), count=6))
    run.refresh_from_db()
    assert (run.state, run.done, rewards(run)) == ("succeeded", 6, [1.0] * 6)
    assert len(engine.orders) > 1


def test_a_stopped_run_takes_nothing_more(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    run = begin(world, rows(world.dataset(), count=6))
    done = run.done
    lab.stop_run(world.sums, world.alice, run, now())
    assert engine.calls[-1] == ("POST", f"/graders/runs/{run.public_id}/stop")
    lab.go_on(run.pk, now())
    run.refresh_from_db()
    assert (run.state, run.done) == ("stopped", done)
    assert done < 6


def test_two_workers_on_one_run_store_each_case_once(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    run = begin(world, rows(world.dataset(), count=6))
    behind = LabRun.objects.select_related("tenant").get(pk=run.pk)
    lab.go_on(run.pk, now())
    gone_on = LabRun.objects.get(pk=run.pk).done
    lab._advance(behind, now(), case_seconds=1.0, is_final=True)
    assert LabRun.objects.get(pk=run.pk).done == gone_on == behind.done + 1


def test_an_engine_that_is_down_is_said_at_once(world: World, engine: FakeEngine) -> None:
    engine.down = True
    run = begin(world, typed())
    assert (run.state, run.note) == ("failed", lab.DOWN)


def test_an_engine_that_is_only_slow_is_asked_again_in_the_background(world: World, engine: FakeEngine) -> None:
    engine.slow = 1
    run = begin(world, typed())
    assert run.is_open
    lab.go_on(run.pk, now())
    run.refresh_from_db()
    assert (run.state, rewards(run)) == ("succeeded", [1.0])


def test_a_run_on_its_way_outlives_a_short_absence_of_the_engine(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    run = begin(world, rows(world.dataset(), count=6))
    engine.down = True
    lab.go_on(run.pk, now())
    assert LabRun.objects.get(pk=run.pk).is_open
    engine.down = False
    for _ in range(6):
        lab.go_on(run.pk, now())
    assert LabRun.objects.get(pk=run.pk).state == "succeeded"


def test_a_run_gives_up_on_an_engine_that_stays_away(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    run = begin(world, rows(world.dataset(), count=6))
    engine.down = True
    for _ in range(lab.MAX_FAILURES + 1):
        lab.go_on(run.pk, now())
    assert LabRun.objects.get(pk=run.pk).state == "failed"


def test_a_reward_that_breaks_its_process_again_and_again_ends_the_run(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    engine.sandbox = Scripted(Failed(kind="hard_timeout", message="killed after 5.5 s"))
    run = begin(world, rows(world.dataset(), count=20), PYTHON)
    while run.is_open:
        lab.go_on(run.pk, now())
        run.refresh_from_db()
    assert (run.state, run.done < 20) == ("failed", True)
    assert "ran out of time or memory" in run.note


def test_another_tenants_run_at_work_makes_this_one_wait(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    run = begin(world, rows(world.dataset(), count=6))
    other = lab.begin_run(world.other, world.charlie, NUMERIC, parse_trial(rows(world.dataset(world.charlie), count=6)), now())
    LabRun.objects.filter(pk=other.pk).update(busy_until=now() + timedelta(seconds=60))
    asked = len(engine.orders)
    lab.go_on(run.pk, now())
    assert len(engine.orders) == asked


def test_a_lost_task_is_noticed_by_whoever_looks(world: World, engine: FakeEngine, django_capture_on_commit_callbacks: Any) -> None:
    slowly(engine)
    run = begin(world, rows(world.dataset(), count=3))
    later = now() + timedelta(minutes=1)
    with django_capture_on_commit_callbacks(execute=True) as calls:
        lab.wake(run, later)
        lab.wake(run, later)
    assert (len(calls) > 0, LabRun.objects.get(pk=run.pk).state) == (True, "succeeded")


def test_only_a_few_trials_run_at_once(world: World, engine: FakeEngine) -> None:
    slowly(engine)
    dataset = world.dataset()
    for _ in range(lab.MAX_OPEN):
        begin(world, rows(dataset, count=6))
    with pytest.raises(Conflict, match="running already"):
        begin(world, rows(dataset, count=6))


def test_the_latest_twenty_are_kept(world: World) -> None:
    reward = world.reward()
    for _ in range(lab.MAX_KEPT + 2):
        begin(world, typed(), reward.grader, reward=reward)
    assert reward.lab_runs.count() == lab.MAX_KEPT


def test_a_large_trial_is_sent_in_pieces_that_the_engine_takes(world: World, engine: FakeEngine) -> None:
    samples = [{"output_text": "x" * 150_000, "item": {"answer": "42"}} for _ in range(12)]
    run = begin(world, {"on": {"type": "text", "samples": samples}}, SUBSTRING)
    while run.is_open:
        lab.go_on(run.pk, now())
        run.refresh_from_db()
    assert (run.state, run.done) == ("succeeded", 12)
    assert max(len(json.dumps(order)) for order in engine.orders) < 1 << 20
    assert len(engine.orders) > 1


def test_one_case_that_is_too_large_is_named(world: World) -> None:
    with pytest.raises(Invalid, match="number 1 and its completion"):
        begin(world, typed("x" * 199_000, {"answer": "y" * 199_000}))
