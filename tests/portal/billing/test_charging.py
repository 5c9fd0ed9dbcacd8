"""What is billed in each case: every row of the table in deploy/BILLING.md, by its name there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from portal.billing import charging, ledger
from portal.billing.models import DailyUsage, Entry, Hold, Price
from portal.jobs import ingest, lifecycle
from portal.jobs.models import EngineCursor, JobEvent
from tests.portal.billing.books import STEP_MICROS, Run, account, billed
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

ROLLOUT = ("prefill", "cached_prefill", "sampled")


@pytest.fixture
def run(world: World, engine: FakeEngine) -> Run:
    account(world.sums, 100_000_000)
    return Run(world, engine)


def sound(run: Run) -> bool:
    return ledger.audit(run.job.tenant).sound


def test_a_committed_step_is_billed_by_kind(run: Run) -> None:
    run.ready(0)
    run.step(1)
    run.store()
    assert run.bill() == billed(1)
    assert run.account.balance_micros == 100_000_000 - STEP_MICROS
    assert sound(run)


def test_an_event_that_comes_twice_changes_nothing(run: Run) -> None:
    run.step(1)
    run.store()
    EngineCursor.objects.update(offset=0)
    run.store()
    charging.charge(run.job, JobEvent.objects.filter(job=run.job), NOW)
    assert (run.bill(), run.account.balance_micros) == (billed(1), 100_000_000 - STEP_MICROS)
    assert sound(run)


def test_a_crash_before_the_commit_leaves_neither_event_nor_entry(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.step(1)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ingest.gate, "after_step", die)
    with pytest.raises(KeyboardInterrupt):
        run.store()
    assert (run.bill(), JobEvent.objects.count(), run.account.balance_micros) == ({}, 0, 100_000_000)
    monkeypatch.undo()
    run.store()
    assert run.bill() == billed(1)


def test_more_cached_than_read_is_all_cached(run: Run) -> None:
    run.step(1, rollout={"cached_tokens": 5000})
    run.store()
    assert run.bill()[1, 1, "cached_prefill"] == (1000, 25)
    assert (1, 1, "prefill") not in run.bill()


def test_judges_tokens_are_billed(run: Run) -> None:
    run.step(1, tokens={"judge": 3000})
    run.store()
    assert run.bill()[1, 1, "judge"] == (3000, 600)


@pytest.mark.parametrize("skipped", ["no_signal", "nonfinite"])
def test_training_that_taught_nothing_is_free_and_says_why(run: Run, skipped: str) -> None:
    run.step(1, skipped=skipped)
    run.store()
    assert run.bill() == billed(1, free=("trained",))
    assert "nothing was trained" in " ".join(run.reasons())


def test_a_step_that_trained_nothing_has_no_line_for_training(run: Run) -> None:
    run.step(1, skipped="no_signal", tokens={"trained": 0})
    run.store()
    assert run.bill() == billed(1, only=ROLLOUT)


def test_a_step_that_the_platform_failed_is_free(run: Run) -> None:
    run.step(1, attribution="platform")
    run.store()
    assert run.bill() == billed(1, free=(*ROLLOUT, "trained"))


def test_an_attempt_that_was_lost_is_free_and_the_next_is_billed(run: Run) -> None:
    run.ready(0, attempt=1)
    run.store()
    run.tell("rollout_lost", version=0, attempt=1, reason="the sampler died", attribution="platform")
    run.ready(0, attempt=2)
    run.step(1, attempt=2)
    run.store()
    assert run.bill() == {**billed(1, 1, free=ROLLOUT, only=ROLLOUT), **billed(1, 2)}
    assert "not billed, no step came of it: the sampler died" in run.reasons()
    assert run.account.balance_micros == 100_000_000 - STEP_MICROS


def test_an_attempt_without_a_batch_has_no_line(run: Run) -> None:
    run.tell("rollout_lost", version=0, attempt=1, reason="the sampler died", attribution="platform")
    run.store()
    assert run.bill() == {}


def test_a_training_that_is_repeated_is_billed_once(run: Run) -> None:
    run.ready(0)
    run.tell("train_lost", version=0, attempt=1, reason="the trainer died", attribution="platform")
    run.step(1)
    run.store()
    assert run.bill() == billed(1)


@pytest.mark.parametrize(
    ("state", "attribution", "free"),
    [("cancelled", "user", False), ("failed", "reward", False), ("failed", "user", False), ("failed", "platform", True)],
)
def test_what_was_sampled_before_the_end_is_billed_only_if_the_end_was_the_tenants_doing(
    run: Run, state: str, attribution: str, free: bool
) -> None:
    run.step(1)
    run.ready(1)
    run.tell("ended", state=state, reason="enough", attribution=attribution, version=1)
    run.store()
    assert run.bill() == {**billed(1), **billed(2, only=ROLLOUT, free=ROLLOUT if free else ())}
    assert (run.hold.micros, run.hold.closed_at, run.account.held_micros) == (0, NOW, 0)
    assert sound(run)


def test_a_batch_that_was_lost_is_not_billed_when_the_job_is_cancelled(run: Run) -> None:
    run.ready(0)
    run.tell("rollout_lost", version=0, attempt=1, reason="disk", attribution="platform")
    run.tell("ended", state="cancelled", reason="enough", attribution="user", version=0)
    run.store()
    assert run.bill() == billed(1, only=ROLLOUT, free=ROLLOUT)


def test_a_job_whose_engine_was_replaced_is_not_billed_for_what_is_lost(run: Run) -> None:
    run.ready(0)
    run.store()
    lifecycle.orphan(run.job, NOW)
    assert run.bill() == billed(1, only=ROLLOUT, free=ROLLOUT)
    assert run.hold.closed_at == NOW


def test_a_job_that_the_engine_refused_costs_nothing_and_frees_its_hold(world: World, engine: FakeEngine) -> None:
    account(world.sums, 100_000_000)
    job = world.job()
    assert Hold.objects.get(job=job).micros > 0
    lifecycle.refuse(job, [("spec", "no")], NOW)
    assert (Hold.objects.get(job=job).micros, ledger.audit(world.sums).sound) == (0, True)
    assert not Entry.objects.filter(source=job.public_id).exists()


def test_a_success_frees_what_is_left_of_the_hold(run: Run) -> None:
    run.step(1)
    run.tell("ended", state="succeeded", reason="", attribution="user", version=1)
    run.store()
    assert (run.hold.micros, run.account.held_micros) == (0, 0)
    assert run.bill() == billed(1)


def test_an_evaluation_is_billed_once_per_version(run: Run) -> None:
    for _ in range(2):
        run.tell("eval", version=0, sampled_tokens=5000, judge_tokens=100)
        run.store()
    found = {(e.step, e.kind): (e.quantity, -e.amount_micros) for e in Entry.objects.filter(source_type="evaluation")}
    assert found == {(0, "sampled"): (5000, 2000), (0, "judge"): (100, 20)}


def test_a_late_event_costs_what_it_cost_when_it_happened(run: Run) -> None:
    happened = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=1)  # the fake engine's clock is in these minutes
    Price.objects.create(model="", kind="sampled", micros_per_million=9_000_000, effective_from=happened, set_by="ops")
    run.step(1)
    run.store(NOW + timedelta(days=40))
    assert run.bill()[1, 1, "sampled"] == (2000, 800)
    assert {row.day for row in DailyUsage.objects.all()} == {happened.date()}


def test_a_price_of_a_model_goes_before_the_price_of_all(run: Run) -> None:
    Price.objects.create(
        model="tiny-math", kind="trained", micros_per_million=1_000_000, effective_from=datetime(2020, 1, 1, tzinfo=UTC), set_by="ops"
    )
    Price.objects.create(model="other", kind="sampled", micros_per_million=1, effective_from=datetime(2020, 1, 1, tzinfo=UTC), set_by="ops")
    run.step(1)
    run.store()
    assert (run.bill()[1, 1, "trained"], run.bill()[1, 1, "sampled"]) == ((1500, 1500), (2000, 800))


@pytest.mark.parametrize("count", [-5, 1.5, "many", None, True, 10**12])
def test_a_count_that_is_not_to_be_believed_is_billed_to_nobody(run: Run, count: object, caplog: pytest.LogCaptureFixture) -> None:
    run.step(1, tokens={"sampled": count})
    run.store()
    assert (1, 1, "sampled") not in run.bill()
    assert "count_not_believed" in caplog.text
    assert run.bill()[1, 1, "trained"] == (1500, 900)


def test_a_job_that_is_older_than_billing_is_not_billed(run: Run) -> None:
    Hold.objects.filter(job=run.job).delete()
    run.step(1)
    run.store()
    assert run.bill() == {}


def test_a_step_after_the_end_is_billed_all_the_same(run: Run) -> None:
    run.tell("ended", state="cancelled", reason="", attribution="user", version=0)
    run.store()
    run.step(1)
    run.store()
    assert run.bill() == billed(1)
    assert sound(run)


def test_a_crash_of_the_engine_bills_each_committed_step_once(run: Run) -> None:
    """It dies while step 2 rolls out, its next epoch redoes that as attempt 2, dies after the batch, and trains it in a third epoch."""
    run.ready(0)
    run.step(1)
    run.tell("rollout_started", version=1, attempt=1)
    run.store()
    run.engine.epoch = 2
    run.tell("rollout_lost", version=1, attempt=1, reason="the manager restarted", attribution="platform")
    run.ready(1, attempt=2)
    run.store()
    run.engine.epoch = 3
    run.tell("train_started", version=1, attempt=2)
    run.step(2, attempt=2)
    run.store()
    assert run.bill() == {**billed(1), **billed(2, 2)}
    assert run.account.balance_micros == 100_000_000 - 2 * STEP_MICROS


def test_a_reason_that_postgres_cannot_store_does_not_stop_the_stream(run: Run) -> None:
    run.ready(0)
    run.tell("rollout_lost", version=0, attempt=1, reason="a\x00b\ud800", attribution="platform")
    run.store()
    assert run.reasons() == {"not billed, no step came of it: a\ufffdb?"}


def test_counts_that_are_too_many_together_do_not_stop_the_stream(run: Run) -> None:
    run.ready(0, prompt_tokens=10**9, env_tokens=10**9)
    run.tell("rollout_lost", version=0, attempt=1, reason="disk", attribution="platform")
    run.store()
    assert set(run.bill()) == {(1, 1, "sampled")}
