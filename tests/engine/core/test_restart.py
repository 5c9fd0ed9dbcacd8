"""A new scheduler takes up the jobs of the last one from durable facts."""

from __future__ import annotations

from engine.core import messages as m
from tests.engine.core.house import House


def test_an_interrupted_rollout_is_redone_under_the_next_attempt():
    assert House().submit("a", version=2, attempt=1, admitted=True) == ["rollout a 2/2"]


def test_a_ready_batch_is_trained_on_without_sampling_again():
    assert House().submit("a", version=2, attempt=3, ready_attempt=3, admitted=True) == ["train a 2/3"]


def test_a_batch_of_an_attempt_that_was_given_up_is_not_trained_on():
    assert House().submit("a", version=2, attempt=3, ready_attempt=2, admitted=True) == ["rollout a 2/4"]


def test_an_admitted_job_takes_its_place_back_while_admission_is_paused():
    house = House()
    house.tell(m.AdmissionChanged, mode="paused")
    assert house.submit("new") == []
    assert house.submit("old", admitted=True) == ["rollout old 0/1"]


def test_an_admitted_job_takes_its_place_back_before_anything_new():
    house = House(max_active=1)
    house.tell(m.AdmissionChanged, mode="paused")
    house.submit("new")
    house.submit("old", admitted=True)
    assert house.tell(m.AdmissionChanged, mode="open") == []


def test_an_admitted_job_that_fits_no_longer_queues():
    house = House(max_active=1)
    house.submit("a", admitted=True, steps=1)
    assert house.submit("b", admitted=True) == []
    assert "admit b" in house.step("a")


def test_a_queued_job_with_a_ready_batch_trains_once_admitted():
    house = House(max_active=1)
    house.submit("a", steps=1)
    house.submit("b", version=1, attempt=1, ready_attempt=1)
    assert house.step("a") == ["release a succeeded", "admit b", "train b 1/1"]


def test_a_ready_batch_is_trained_on_as_soon_as_its_job_takes_a_turn():
    house = House(max_active=1, slot_hold="step", kv_hold="rollout")
    house.submit("a", steps=1)
    house.submit("b", version=1, attempt=1, ready_attempt=1)
    assert house.step("a") == ["release a succeeded", "admit b", "train b 1/1"]


def test_a_paused_job_stays_held():
    house = House()
    assert house.submit("a", version=1, paused=True) == ["hold a"]
    assert house.resume("a") == ["admit a", "rollout a 1/1"]


def test_a_job_paused_in_mid_step_commits_that_step_first():
    house = House()
    assert house.submit("a", attempt=1, ready_attempt=1, admitted=True, paused=True) == ["train a 0/1"]
    assert house.trained("a") == ["hold a"]


def test_a_job_paused_during_an_interrupted_rollout_is_held_at_once():
    assert House().submit("a", attempt=1, admitted=True, paused=True) == ["hold a"]


def test_a_job_that_committed_its_last_version_only_ends():
    assert House().submit("a", steps=3, version=3, admitted=True) == ["release a succeeded"]


def test_a_job_that_lost_its_last_evaluation_runs_it_again():
    house = House()
    assert house.submit("a", steps=3, version=3, eval_ends=True, last_evaluated=0) == ["eval a 3"]
    assert house.evaluated("a", 3) == ["release a succeeded"]


def test_a_stop_that_was_asked_for_before_the_crash_ends_the_restored_job():
    house = House()
    house.submit("a", attempt=1, ready_attempt=1, admitted=True)
    house.cancel("a")
    assert house.trained("a") == ["release a cancelled"]


def test_restored_jobs_share_one_round_under_a_barrier():
    house = House(barrier=True)
    house.submit("a", version=1, attempt=1, ready_attempt=1, admitted=True)
    assert house.submit("b", version=1, admitted=True) == []
    assert house.trained("a") == ["rollout b 1/1", "rollout a 2/1"]


def test_a_restored_job_does_not_lift_its_tenant_over_the_cap():
    house = House()
    house.submit("a", tenant="t", running_cap=1, admitted=True)
    assert house.submit("b", tenant="t", running_cap=1, admitted=True) == []
