"""Fair share: equal tokens for equal weights, a stated bound for small jobs, and nobody slowed by a neighbour's trouble."""

from __future__ import annotations

import math
import random
from collections import Counter

import pytest

from engine.core import messages as m
from engine.core.fair import FairShare
from engine.core.policy import Policy
from tests.engine.core.house import House
from tests.engine.core.town import Town, Work


def fair(**changes: object) -> Policy:
    return Policy(**{"max_active": 8, "admission_order": "fair", "kv_hold": "rollout", "slot_hold": "step", **changes})


# The account


def share(*tenants: str) -> FairShare:
    account = FairShare()
    for tenant in tenants:
        account.join(tenant, 1.0)
    return account


def serve(account: FairShare, tenant: str, tokens: float) -> None:
    account.started(tenant, tokens)
    account.ended(tenant, tokens, tokens)


def test_who_was_served_less_goes_first():
    account = share("a", "b")
    serve(account, "a", 100.0)
    assert account.key("b") < account.key("a")


def test_what_runs_counts_as_served():
    account = share("a", "b")
    account.started("a", 100.0)
    assert account.key("b") < account.key("a")


def test_an_estimate_is_corrected_by_the_real_tokens():
    account = share("a", "b")
    account.started("a", 1000.0)
    account.ended("a", 1000.0, 50.0)
    serve(account, "b", 100.0)
    assert account.key("a") < account.key("b")


def test_an_estimate_that_was_too_high_earns_no_credit_over_newcomers():
    account = share("a", "b")
    account.started("a", 1000.0)
    for _ in range(5):
        serve(account, "b", 100.0)
    account.join("newcomer", 1.0)
    account.ended("a", 1000.0, 1.0)
    assert account.key("a")[0] >= account.key("newcomer")[0]


def test_a_tenant_that_returns_from_idleness_has_no_credit():
    account = share("idle", "busy")
    for _ in range(3):
        serve(account, "busy", 100.0)
    account.catch_up("idle")
    assert account.key("idle")[0] == 200.0  # what busy had when its last step began


def test_a_newcomer_goes_first_but_only_once():
    account = share("busy")
    for _ in range(9):
        serve(account, "busy", 100.0)
    account.join("newcomer", 1.0)
    assert account.key("newcomer") < account.key("busy")
    serve(account, "newcomer", 500.0)
    assert account.key("busy") < account.key("newcomer")


def test_a_tenant_that_leaves_and_returns_keeps_its_debt():
    account = share("greedy", "other")
    serve(account, "greedy", 100.0)
    account.leave("greedy")
    account.join("greedy", 1.0)
    assert account.key("other") < account.key("greedy")


def test_among_equals_the_one_that_waits_longest_goes_first():
    account = share("a", "b")
    account.started("a", 0.0)
    assert account.key("b") < account.key("a")


def test_an_unknown_job_is_expected_to_be_like_the_others_of_its_size():
    account = FairShare()
    assert account.expected(1000.0) == 1000.0
    account.learn(1000.0, 100.0)
    assert account.expected(500.0) == pytest.approx(50.0)


def test_a_job_is_charged_with_what_its_last_steps_took():
    house = House(fair())
    house.submit("a", step_tokens=1000)
    for tokens in (100, 300):
        house.rolled("a", tokens=tokens)
        house.trained("a")
    share = house.scheduler.admission.fair
    assert share.running("tenant of a") == 200.0
    assert share.key("tenant of a")[0] == 100 + 300 + 200


# The shares, in virtual time


def tokens_by_weight(weights: dict[str, float], seconds: float = 40_000.0, **changes: object) -> dict[str, float]:
    """Tokens per weight of each tenant, relative to the mean. Each has eight jobs; the jobs of each are of another kind."""
    town, chance = Town(policy=fair(**changes)), random.Random(1)
    for number, (tenant, weight) in enumerate(weights.items()):
        scale = 3.0**number
        for job in range(8):
            work = Work(
                tenant=tenant,
                rollout_seconds=lambda version, scale=scale: chance.uniform(5, 15) * scale,
                tokens=lambda version, scale=scale: chance.uniform(500, 1500) * scale,
                train_seconds=0.1,
            )
            town.submit(f"{tenant}{job}", work, weight=weight, step_tokens=10_000)
    town.run(seconds)
    per_weight = {tenant: town.tokens[tenant] / weight for tenant, weight in weights.items()}
    mean = sum(per_weight.values()) / len(per_weight)
    return {tenant: tokens / mean for tenant, tokens in per_weight.items()}


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": 2.0, "c": 4.0}, {"a": 4.0, "b": 2.0, "c": 1.0}])
@pytest.mark.parametrize("slots", [1, 4, 8])
def test_tokens_follow_the_weights_within_a_tenth(weights, slots):
    shares = tokens_by_weight(weights, max_active=slots)
    assert shares == pytest.approx(dict.fromkeys(weights, 1.0), abs=0.1)


def test_tokens_follow_the_weights_where_memory_is_short_and_not_slots():
    shares = tokens_by_weight({"a": 1.0, "b": 2.0, "c": 4.0}, max_active=64, kv_budget_bytes=3)
    assert shares == pytest.approx({"a": 1.0, "b": 1.0, "c": 1.0}, abs=0.1)


# The bound


def at_once(policy: Policy, largest_kv: int) -> int:
    fit = policy.max_active if policy.kv_budget_bytes is None else policy.kv_budget_bytes // largest_kv
    return max(1, min(policy.max_active, fit, policy.max_rollouts or policy.max_active))


@pytest.mark.parametrize("tenants", [1, 4, 32])
@pytest.mark.parametrize("seed", range(8))
def test_a_small_job_among_thirty_two_large_ones_takes_its_first_step_within_the_bound(tenants, seed):
    """The formula of ``core.fair``, with steps as long and estimates as wrong as chance makes them, and slots or memory short."""
    chance = random.Random(seed)
    policy = fair(
        max_active=chance.choice([2, 8, 64]), kv_budget_bytes=chance.choice([None, 25, 100]), max_rollouts=chance.choice([None, 3])
    )
    town, longest = Town(policy=policy), 60.0
    for number in range(32):
        work = Work(
            tenant=f"large{number % tenants}",
            rollout_seconds=lambda version: chance.choice([0.1, 30.0, longest - 1]),
            tokens=lambda version: chance.choice([1.0, 100.0, 10_000.0]),
        )
        fields = {"kv_bytes": chance.choice([1, 10]), "weight": chance.choice([0.1, 1.0, 10.0]), "priority": chance.randint(-5, 5)}
        town.submit(f"job{number}", work, at=chance.uniform(0, 900), step_tokens=chance.choice([1, 100, 100_000]), **fields)
    submitted = 1000.0 + chance.uniform(0, 100)
    town.submit("small", Work(tenant="small", rollout_seconds=lambda version: 1.0), at=submitted, steps=1, priority=-100)
    town.run(submitted + 100 * longest)
    wait = math.ceil((tenants + 1) / at_once(policy, 10)) * longest
    assert town.first_start["small"] - submitted <= wait
    assert town.commits["small"][0] - submitted <= wait + longest
    before = Counter(tenant for at, tenant in town.starts if submitted < at < town.first_start["small"])
    assert max(before.values(), default=0) <= 1


def test_newcomers_without_end_do_not_keep_an_earlier_one_waiting():
    house = House(fair(max_active=1))
    house.submit("large", tenant="large", steps=9)
    house.submit("small", tenant="small")
    for number in range(20):
        house.submit(f"new{number}", tenant=f"new{number}", priority=100)
    house.rolled("large")
    assert "rollout small 0/1" in house.trained("large")


def test_where_slots_are_held_for_life_a_small_job_waits_for_a_whole_job():
    """Why the engine ships with slots held per step."""
    town = Town(policy=fair(slot_hold="life", max_active=8))
    for number in range(32):
        town.submit(f"job{number}", Work(tenant="large"), steps=1000)
    town.submit("small", Work(tenant="small"), at=5.0, steps=1)
    town.run(9000.0)
    assert "small" not in town.first_start


# Slots held per step


def test_after_each_step_the_order_decides_anew():
    house = House(fair(max_active=1))
    house.submit("a", steps=2)
    house.submit("b", steps=2)
    assert house.step("a") == ["admit b", "rollout b 0/1"]
    assert house.step("b") == ["rollout a 1/1"]


def test_who_waits_between_steps_keeps_its_admission_and_says_so():
    house = House(fair(max_active=1))
    house.submit("a")
    house.submit("b")
    house.step("a")
    view = house.scheduler.view()["a"]
    assert (view.admitted, view.phase, view.code, view.position) == (True, "waiting", "slots", 1)


def test_a_slot_is_held_until_the_commit():
    house = House(fair(max_active=1))
    house.submit("a")
    house.submit("b")
    assert house.rolled("a") == ["train a 0/1"]


def test_in_the_fifo_order_the_first_submitted_goes_on():
    house = House(fair(max_active=1, admission_order="fifo"))
    house.submit("a", steps=2)
    house.submit("b")
    assert house.step("a") == ["rollout a 1/1"]


def test_a_more_important_job_of_the_same_tenant_takes_the_next_step():
    house = House(fair(max_active=1))
    house.submit("a", tenant="t")
    house.submit("b", tenant="t")
    house.tell(m.Reprioritised, job="b", priority=5)
    assert house.step("a") == ["admit b", "rollout b 0/1"]


def test_a_tenants_cap_counts_the_jobs_that_have_begun():
    house = House(fair(max_active=1))
    house.submit("a", tenant="t", running_cap=1)
    house.submit("b", tenant="t", running_cap=1, priority=5)
    assert house.step("a") == ["rollout a 1/1"]
    assert house.scheduler.view()["b"].code == "tenant_cap"


def test_a_closed_door_keeps_new_jobs_out_and_lets_admitted_ones_take_turns():
    house = House(fair(max_active=1))
    house.submit("a")
    house.tell(m.AdmissionChanged, mode="paused")
    house.submit("b")
    assert house.step("a") == ["rollout a 1/1"]


def test_a_restored_batch_goes_on_although_no_slot_is_free():
    house = House(fair(max_active=1))
    house.submit("a", attempt=1, admitted=True)
    assert house.submit("b", attempt=1, ready_attempt=1, admitted=True) == ["train b 0/1"]


def test_changing_how_slots_are_held_takes_nobodys_place():
    house = House(fair(max_active=1))
    for job in "ab":
        house.submit(job, steps=2)
    house.step("a")
    house.tell(m.PolicyChanged, policy=Policy(max_active=1, admission_order="fair", max_rollouts=1))
    assert len(house.scheduler.admission.slots) == 2
    house.tell(m.PolicyChanged, policy=fair(max_active=1))
    assert len(house.scheduler.admission.slots) == 1
    assert house.step("b") == ["rollout a 1/1"]


@pytest.mark.parametrize("other", [{"kv_hold": "life"}, {"barrier": True}])
def test_slots_per_step_need_memory_per_rollout_and_no_barrier(other):
    with pytest.raises(ValueError, match="slot_hold"):
        fair(**other)


# The line of rollouts, where slots are held for life


def test_the_rollout_line_is_fair_too():
    house = House(Policy(max_active=8, admission_order="fair", max_rollouts=1))
    for job in ("a1", "a2"):
        house.submit(job, tenant="a")
    house.submit("b1", tenant="b")
    assert house.rolled("a1") == ["train a1 0/1", "rollout b1 0/1"]


# Neighbours in trouble


def undisturbed_steps(trouble: dict[str, Work], *, pause: bool = False) -> dict[str, int]:
    """Steps of three tenants, with room for all, beside ``trouble``."""
    town = Town(policy=fair(max_active=64))
    for tenant in "abc":
        for job in range(2):
            town.submit(f"{tenant}{job}", Work(tenant=tenant))
    for job, work in trouble.items():
        town.submit(job, work, at=50.0)
        if pause:
            town.later(50.0, lambda job=job: m.Paused(at=50.0, job=job))
    town.run(2000.0)
    return {tenant: town.steps(tenant) for tenant in "abc"}


def test_a_paused_tenant_slows_nobody():
    assert undisturbed_steps({f"p{n}": Work(tenant="p") for n in range(2)}, pause=True) == undisturbed_steps({})


@pytest.mark.parametrize("by", ["user", "reward"])
def test_a_tenant_whose_jobs_fail_slows_nobody(by):
    failing = {f"f{n}": Work(tenant="f", fails=lambda version: by) for n in range(40)}
    assert undisturbed_steps(failing) == undisturbed_steps({})


def test_a_tenant_that_only_fails_gets_no_more_than_its_share():
    """One slot for two tenants, one of which has nothing but jobs that fail: lost attempts are charged too."""
    town = Town(policy=fair(max_active=1))
    town.submit("good", Work(tenant="good"))
    for number in range(500):
        town.submit(f"bad{number}", Work(tenant="bad", fails=lambda version: "user"))
    town.run(2000.0)
    assert town.steps("good") == pytest.approx(100, abs=2)
