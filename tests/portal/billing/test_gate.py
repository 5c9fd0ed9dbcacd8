"""When a job may begin, when it is asked to pause, and when it may go on."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine.spec import parse_job
from portal.billing import gate, ledger, quotas, worst
from portal.billing.models import Account, Hold, QuotaOverride
from portal.datasets.actions import Plan, check_order
from portal.errors import Invalid
from portal.jobs import actions, door
from portal.jobs.models import Job, JobCommand, State
from tests.portal.billing.books import Run, account
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

# Four completions of at most 10 + 10 tokens a step, and at most 4 held-out rows: (40 prefill, 80 sampled, 40 trained).
SMALL = {
    "rollout": {"prompts_per_step": 2, "group_size": 2, "max_prompt_tokens": 10, "max_new_tokens": 10},
    "train": {"steps": 5},
}
TOKENS = 160
MICROS = 4 + 32 + 24
USED = {"tokens": {"prefill": 40, "sampled": 40, "trained": 40}, "rollout": {"cached_tokens": 0}}
COST = 4 + 16 + 24


def problems(world: World, **changes: object) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        world.job(**{**SMALL, **changes})
    assert not Job.objects.exists() and not Hold.objects.exists()
    return dict(refused.value.problems)


def limit(world: World, quota: str, most: int | None) -> None:
    QuotaOverride.objects.update_or_create(tenant=world.sums, quota=quota, defaults={"limit": most, "reason": "test"})


def test_the_worst_case_of_a_step_counts_everything_that_may_happen(world: World) -> None:
    order = door.check(world.sums, world.order(**SMALL), NOW)
    assert worst.step_tokens(order.spec) == {"prefill": 40, "sampled": 80, "trained": 40, "judge": 0}
    more = order.spec.model_dump(mode="json")
    more["rollout"] |= {"max_resamples": 2}
    more["train"] |= {"epochs": 3}
    assert worst.step_tokens(parse_job(more)) == {"prefill": 120, "sampled": 160, "trained": 120, "judge": 0}


def test_a_judge_is_counted_with_its_retries(world: World) -> None:
    spec = door.check(world.sums, world.order(**SMALL), NOW).spec.model_dump(mode="json")
    message = {"role": "user", "content": "Is {{sample.output_text}} right?"}
    spec["grader"] = {"type": "score_model", "model": "strict", "input": [message], "sampling_params": {"max_completions_tokens": 50}}
    assert worst.step_tokens(parse_job(spec))["judge"] == 8 * 3 * (20 + len(message["content"]) + 50)


def test_two_steps_are_held_at_submission(world: World) -> None:
    account(world.sums, 1000)
    job = world.job(**SMALL)
    assert (Hold.objects.get(job=job).micros, Account.objects.get(tenant=world.sums).held_micros) == (2 * MICROS, 2 * MICROS)


def test_a_job_of_one_step_holds_one(world: World) -> None:
    account(world.sums, MICROS)
    assert Hold.objects.get(job=world.job(**{**SMALL, "train": {"steps": 1}})).micros == MICROS


def test_a_job_that_the_credit_does_not_cover_is_refused_whole_and_told_what_to_do(world: World, engine: FakeEngine) -> None:
    account(world.sums, 2 * MICROS - 1)
    told = problems(world)["credit"]
    assert "0.00012 USD must be set aside" in told and "0.000119 USD of your credit is free" in told and "ask your operator" in told
    assert engine.jobs == {}


def test_the_api_says_that_credit_lacks(world: World) -> None:
    account(world.sums, 0)
    answer = world.api(world.alice).post("/api/v1/jobs/", world.order(**SMALL), content_type="application/json")
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "insufficient_credit")


def test_two_jobs_for_the_last_credit_one_is_refused(world: World) -> None:
    account(world.sums, 3 * MICROS)
    world.job(**SMALL)
    with pytest.raises(gate.NoCredit):
        world.job(**SMALL)


def test_an_idempotent_repeat_holds_once(world: World) -> None:
    account(world.sums, 2 * MICROS)
    order = world.order(**SMALL)
    first, second = (actions.create_job(world.sums, world.alice, order, NOW, idempotency_key="k") for _ in range(2))
    assert first == second
    assert Hold.objects.count() == 1


def test_after_each_step_the_hold_is_topped_up_for_the_next_two(world: World, engine: FakeEngine) -> None:
    account(world.sums, 10_000)
    run = Run(world, engine, **SMALL)
    for version in range(1, 6):
        run.step(version, **USED)
        run.store()
        assert run.hold.micros == min(2, 5 - version) * MICROS or version >= 4
    assert run.pauses() == []
    assert run.account.balance_micros == 10_000 - 5 * COST
    assert ledger.audit(world.sums).sound


def test_a_job_pauses_when_its_next_steps_are_not_covered_and_never_overdraws(
    world: World, engine: FakeEngine, django_capture_on_commit_callbacks
) -> None:
    account(world.sums, 2 * MICROS + 20)
    run = Run(world, engine, **SMALL)
    run.step(1, **USED)
    with django_capture_on_commit_callbacks(execute=True):
        run.store()
    (reason,) = run.pauses()
    assert reason.startswith("billing: ") and "must be set aside" in reason
    assert run.hold.stop_code == "credit"
    run.step(
        2, tokens={"prefill": 40, "sampled": 80, "trained": 40}, rollout={"cached_tokens": 0}
    )  # the step that was running: at its worst
    run.store()
    assert len(run.pauses()) == 1
    assert run.account.balance_micros == 2 * MICROS + 20 - COST - MICROS >= 0
    assert ("POST", f"/jobs/{run.job.public_id}/pause") in engine.calls


def paused(world: World, engine: FakeEngine, micros: int, **changes: object) -> Run:
    account(world.sums, micros)
    run = Run(world, engine, **{**SMALL, **changes})
    run.step(1, **USED)
    run.store()
    run.tell("paused", version=1)
    run.store()
    assert run.job.state == State.PAUSED
    return run


def test_a_paused_job_goes_on_when_credit_came(world: World, engine: FakeEngine) -> None:
    run = paused(world, engine, 2 * MICROS + 20)
    with pytest.raises(gate.NoCredit, match="must be set aside"):
        actions.resume_job(world.sums, world.alice, run.job, NOW)
    assert not run.job.commands.filter(kind="resume").exists()
    ledger.grant(world.sums, "more", 1000, "ticket", "ops@example.org", NOW)
    actions.resume_job(world.sums, world.alice, run.job, NOW)
    assert (run.hold.stop_code, run.hold.micros) == ("", 2 * MICROS)
    assert run.job.commands.filter(kind="resume").count() == 1


def test_a_cancel_needs_no_credit(world: World, engine: FakeEngine) -> None:
    run = paused(world, engine, 2 * MICROS + 20)
    assert actions.cancel_job(world.sums, world.alice, run.job, NOW).kind == JobCommand.Kind.CANCEL


def test_a_budget_of_money_is_never_gone_beyond(world: World, engine: FakeEngine) -> None:
    budget = 2 * MICROS + COST  # after one step there is room for two more, after two there is not
    account(world.sums, 1_000_000)
    run = Run(world, engine, **SMALL, budget={"micros": budget})
    run.step(1, **USED)
    run.store()
    assert run.pauses() == []
    run.step(2, **USED)
    run.store()
    assert run.hold.stop_code == "budget" and "of its budget of 0.000164 USD" in run.pauses()[0]
    run.step(3, tokens={"prefill": 40, "sampled": 80, "trained": 40}, rollout={"cached_tokens": 0})
    run.store()
    assert gate.spent(run.job)[0] <= budget


def test_a_budget_of_tokens_pauses_too(world: World, engine: FakeEngine) -> None:
    account(world.sums, 1_000_000)
    run = Run(world, engine, **SMALL, budget={"tokens": 2 * TOKENS + 100})
    run.step(1, **USED)
    run.store()
    assert "its budget of 420 tokens" in run.pauses()[0]


@pytest.mark.parametrize(
    ("budget", "field", "words"),
    [
        (5, "budget", "must be an object"),
        ({"micros": 0}, "budget.micros", "above 0"),
        ({"micros": 1.5}, "budget.micros", "whole number"),
        ({"tokens": True}, "budget.tokens", "whole number"),
        ({"euros": 5}, "budget.euros", "choose among"),
        ({"micros": 2 * MICROS - 1}, "budget.micros", "may cost 0.00012 USD (120 micro-units)"),
        ({"tokens": 2 * TOKENS - 1}, "budget.tokens", "may take 320 tokens"),
    ],
    ids=str,
)
def test_a_bad_budget_is_named(world: World, budget: object, field: str, words: str) -> None:
    assert words in problems(world, budget=budget)[field]


@pytest.mark.parametrize(
    ("quota", "most", "field", "words"),
    [
        ("steps", 4, "train.steps", "allows 4 steps, this job asks for 5"),
        ("rank", 8, "lora.rank", "allows 8 rank, this job asks for 16"),
        ("context_tokens", 19, "rollout.max_new_tokens", "allows 19 context tokens, this job asks for 20"),
        ("running_jobs", 0, "quota.running_jobs", "runs no jobs"),
        ("storage_bytes", 10, "quota.storage_bytes", "your plan allows 10"),
        ("tokens_per_month", 2 * TOKENS - 1, "quota.tokens_per_month", "0 of this month's 319 tokens are used"),
    ],
)
def test_a_quota_refuses_and_says_what_is_used_allowed_and_to_be_done(world: World, quota: str, most: int, field: str, words: str) -> None:
    limit(world, quota, most)
    told = problems(world)[field]
    assert words in told and "operator" in told


def test_running_and_queued_jobs_are_counted_together_at_the_door(world: World) -> None:
    limit(world, "running_jobs", 1)
    limit(world, "queued_jobs", 1)
    first = world.job(**SMALL)
    world.job(**SMALL)
    with pytest.raises(quotas.QuotaExceeded, match="2 jobs run or wait, your plan allows 2"):
        world.job(**SMALL)
    Job.objects.filter(pk=first.pk).update(state=State.SUCCEEDED)
    world.job(**SMALL)


def test_the_engine_is_told_how_many_may_run_at_once(world: World) -> None:
    limit(world, "running_jobs", 3)
    assert world.job(**SMALL).submission.body["running_cap"] == 3


def test_an_override_without_a_limit_lifts_the_plans(world: World) -> None:
    plan = ledger.account_of(world.sums, NOW).plan
    plan.steps = 1
    plan.save()
    assert "train.steps" in problems(world)
    limit(world, "steps", None)
    world.job(**SMALL)


def test_the_months_tokens_are_looked_at_after_each_step_and_begin_anew_with_the_month(world: World, engine: FakeEngine) -> None:
    limit(world, "tokens_per_month", 2 * TOKENS + 100)
    run = paused(world, engine, 1_000_000)
    assert run.hold.stop_code == "quota" and "120 of this month's 420 tokens" in run.pauses()[0]
    with pytest.raises(quotas.QuotaExceeded):
        actions.resume_job(world.sums, world.alice, run.job, NOW)
    actions.resume_job(world.sums, world.alice, run.job, NOW + timedelta(days=31))


def test_a_dataset_that_the_plan_has_no_room_for_is_refused_before_and_after_its_upload(world: World) -> None:
    limit(world, "storage_bytes", 100)
    with pytest.raises(quotas.QuotaExceeded, match=r"take 0 bytes, this one [0-9,]+ more, and your plan allows 100, or ask your operator"):
        world.dataset()
    limit(world, "storage_bytes", 10**6)
    stored = world.dataset()
    limit(world, "storage_bytes", stored.train_bytes + stored.eval_bytes)
    with pytest.raises(quotas.QuotaExceeded):
        check_order(world.sums, world.alice, "more", Plan())
