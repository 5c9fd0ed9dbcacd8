"""Who gets a place: adapter slots, the KV budget, tenants' caps, and the order of the queue."""

from __future__ import annotations

from engine.core import messages as m
from engine.core.policy import Policy
from tests.engine.core.house import House


def test_no_more_jobs_are_admitted_than_there_are_slots():
    house = House(max_active=1)
    house.submit("a", steps=1)
    assert house.submit("b") == []
    assert house.step("a") == ["release a succeeded", "admit b", "rollout b 0/1"]


def test_no_more_jobs_are_admitted_than_fit_the_kv_budget():
    house = House(kv_budget_bytes=25)
    house.submit("a", steps=1)
    house.submit("b")
    assert house.submit("c") == []
    assert "admit c" in house.step("a")


def test_a_job_larger_than_the_budget_runs_alone():
    house = House(kv_budget_bytes=25)
    assert house.submit("huge", kv_bytes=99, steps=1) == ["admit huge", "rollout huge 0/1"]
    assert house.submit("b") == []
    assert "admit b" in house.step("huge")


def test_the_first_in_line_is_not_overtaken_by_a_smaller_job():
    house = House(kv_budget_bytes=25)
    house.submit("a", steps=1)
    house.submit("huge", kv_bytes=99)
    assert house.submit("small", kv_bytes=1) == []
    assert house.step("a") == ["release a succeeded", "admit huge", "rollout huge 0/1"]


def test_a_tenant_at_its_cap_is_passed_over():
    house = House()
    house.submit("a", tenant="t", running_cap=1, steps=1)
    assert house.submit("b", tenant="t", running_cap=1) == []
    assert house.submit("c", tenant="u") == ["admit c", "rollout c 0/1"]
    assert house.step("a") == ["release a succeeded", "admit b", "rollout b 0/1"]


def test_a_tenants_latest_submission_says_its_cap():
    house = House()
    house.submit("a", tenant="t", running_cap=1)
    house.submit("b", tenant="t", running_cap=1)
    assert house.submit("c", tenant="t", running_cap=3) == ["admit b", "admit c", "rollout b 0/1", "rollout c 0/1"]


def test_a_job_that_resumes_does_not_bring_an_older_cap_back():
    house = House()
    house.submit("a", tenant="t", running_cap=1)
    house.pause("a")
    house.rolled("a")
    house.trained("a")
    house.submit("b", tenant="t", running_cap=2)
    assert house.resume("a") == ["admit a", "rollout a 1/1"]


def test_paused_admission_lets_admitted_jobs_go_on_but_takes_none_in():
    house = House()
    house.submit("a")
    house.tell(m.AdmissionChanged, mode="paused")
    assert house.submit("b") == []
    assert house.step("a") == ["rollout a 1/1"]
    assert house.tell(m.AdmissionChanged, mode="open") == ["admit b", "rollout b 0/1"]


def test_draining_trains_what_is_ready_and_starts_no_new_step():
    house = House()
    house.submit("a")
    house.tell(m.AdmissionChanged, mode="drain")
    assert house.rolled("a") == ["train a 0/1"]
    assert house.trained("a") == []
    assert house.tell(m.AdmissionChanged, mode="open") == ["rollout a 1/1"]


def test_the_more_important_job_goes_first_in_the_priority_order():
    house = House(max_active=1, admission_order="priority")
    house.submit("a", steps=1)
    house.submit("b")
    house.submit("c", priority=1)
    assert "admit c" in house.step("a")


def test_the_priority_order_ages_so_that_nothing_starves():
    house = House(max_active=1, admission_order="priority", ageing_seconds=60.0)
    house.submit("a", steps=1)
    house.submit("b")
    house.at = 61.0
    house.submit("c", priority=1)
    assert "admit b" in house.step("a")


def test_a_waiting_job_that_becomes_more_important_overtakes():
    house = House(max_active=1, admission_order="priority")
    for job in "abc":
        house.submit(job, steps=1)
    house.tell(m.Reprioritised, job="c", priority=1)
    assert "admit c" in house.step("a")


def test_a_waiting_job_that_becomes_less_important_is_overtaken():
    house = House(max_active=1, admission_order="priority")
    for job in "abc":
        house.submit(job, steps=1)
    house.tell(m.Reprioritised, job="b", priority=-1)
    assert "admit c" in house.step("a")


def test_the_fair_order_prefers_the_tenant_that_was_served_less():
    house = House(max_active=1, admission_order="fair")
    for job in ("a1", "a2", "a3"):
        house.submit(job, tenant="a", steps=1)
    house.submit("b1", tenant="b", steps=1)
    assert "admit b1" in house.step("a1")


def _served(weights: dict[str, float], releases: int) -> dict[str, int]:
    house = House(max_active=1, admission_order="fair")
    for number in range(releases):
        for tenant, weight in weights.items():
            house.submit(f"{tenant}{number}", tenant=tenant, weight=weight, steps=1)
    for _ in range(releases):
        (running,) = [job for job, view in house.scheduler.view().items() if view.admitted]
        house.step(running)
    ended = [c.job[0] for c in house.commands if isinstance(c, m.Release)]
    return {tenant: ended.count(tenant) for tenant in weights}


def test_equal_weights_are_served_equally():
    assert _served({"a": 1.0, "b": 1.0}, 20) == {"a": 10, "b": 10}


def test_a_tenant_of_three_times_the_weight_is_served_three_times_as_much():
    assert _served({"a": 3.0, "b": 1.0}, 40) == {"a": 30, "b": 10}


def test_a_small_tenants_job_waits_for_one_job_of_a_crowd_at_most():
    house = House(max_active=1, admission_order="fair")
    for number in range(32):
        house.submit(f"big{number}", tenant="big", steps=1, kv_bytes=1000)
    house.step("big0")
    house.submit("small", tenant="small", steps=1)
    assert "admit small" in house.step("big1")


def test_kv_held_per_rollout_limits_rollouts_not_admissions():
    house = House(kv_budget_bytes=15, kv_hold="rollout")
    house.submit("a")
    assert house.submit("b") == ["admit b"]
    assert house.rolled("a") == ["train a 0/1", "rollout b 0/1"]


def test_a_rollout_larger_than_the_budget_runs_alone():
    house = House(kv_budget_bytes=15, kv_hold="rollout")
    house.submit("a")
    house.submit("huge", kv_bytes=99)
    house.submit("b")
    assert house.rolled("a") == ["train a 0/1", "rollout huge 0/1"]
    assert house.trained("a") == []
    assert "rollout b 0/1" in house.rolled("huge")


def test_a_raised_limit_admits_at_once():
    house = House(max_active=1)
    house.submit("a")
    house.submit("b")
    policy = Policy(max_active=2)
    assert house.tell(m.PolicyChanged, policy=policy) == ["admit b", "rollout b 0/1"]


def test_a_lowered_limit_evicts_nobody_and_admits_nobody():
    house = House(max_active=2)
    for job in "abc":
        house.submit(job, steps=1)
    house.tell(m.PolicyChanged, policy=Policy(max_active=1))
    assert house.step("a") == ["release a succeeded"]
    assert "admit c" in house.step("b")


def test_a_changed_order_reorders_who_waits():
    house = House(max_active=1)
    house.submit("a", steps=1)
    house.submit("b")
    house.submit("c", priority=1)
    house.tell(m.PolicyChanged, policy=Policy(max_active=1, admission_order="priority"))
    assert "admit c" in house.step("a")


def test_a_change_of_order_keeps_tenants_at_their_cap():
    house = House()
    house.submit("a", tenant="t", running_cap=1)
    house.submit("b", tenant="t", running_cap=1)
    assert house.tell(m.PolicyChanged, policy=Policy(max_active=8, admission_order="fair")) == []


def test_kv_follows_a_live_change_of_how_long_it_is_held():
    house = House(kv_budget_bytes=25)
    house.submit("a")
    house.submit("b")
    house.rolled("a")
    change = {"max_active": 8, "kv_budget_bytes": 25}
    house.tell(m.PolicyChanged, policy=Policy(**change, kv_hold="rollout"))
    assert house.scheduler.admission.kv.reserved_bytes == 10
    house.tell(m.PolicyChanged, policy=Policy(**change))
    assert house.scheduler.admission.kv.reserved_bytes == 20


def test_everything_is_given_back_when_the_last_job_ends():
    house = House(kv_budget_bytes=25)
    house.submit("a", steps=1)
    house.submit("b")
    house.step("a")
    house.cancel("b")
    admission = house.scheduler.admission
    assert (admission.kv.reserved_bytes, len(admission.slots), len(admission.queue)) == (0, 0, 0)
