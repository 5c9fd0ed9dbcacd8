from __future__ import annotations

import pytest

from engine.bench import handovers as h
from engine.bench.handovers import handovers
from tests.engine.bench.runs import job, run, step


def mean(table, name):
    return table[name]["mean_s"]


def test_what_a_rollout_took_beyond_its_sampler_is_a_hand_over():
    table = handovers(run(job("a", step(1, 0, 0, 2.0, 0, 1, 0.5, worked=(1.0, 0.5, 0.25)))))

    assert mean(table, h.TO_SAMPLER) == pytest.approx(0.25)
    assert mean(table, h.COMMIT) == 0.5


def test_waiting_for_a_trainer_at_work_is_the_queue_and_for_a_free_one_a_hand_over():
    busy = job("a", step(1, 0, 0, 1, 0, 2, 0))
    waiting = job("b", step(1, 0, 0, 2, 4, 1, 0))

    table = handovers(run(busy, waiting))

    assert (table[h.QUEUE]["longest_s"], table[h.TO_TRAINER]["longest_s"]) == (1.0, 3.0)


def test_the_wait_for_admission_is_no_hand_over():
    table = handovers(run(job("a", step(1, 0, 60, 1, 0, 1, 0), step(2, 62, 0.5, 1, 0, 1, 0))))

    assert table[h.TO_NEXT] == {"mean_s": 0.5, "longest_s": 0.5, "share": round(0.5 / 2.25, 4)}


def test_the_trainers_own_account_shows_what_its_call_costs():
    told = step(1, 0, 0, 1, 0, 1.0, 0)

    assert mean(handovers(run(job("a", {**told, "seconds": {"trainer": 0.75}}))), h.IN_TRAINER) == 0.25
    assert h.IN_TRAINER not in handovers(run(job("a", told)))


def test_a_training_is_held_against_the_same_by_itself():
    table = handovers(run(job("a", step(1, 0, 0, 1, 0, 1.0, 0))), trained_alone=0.75)

    assert mean(table, h.BESIDE) == 0.25
    assert mean(table, h.TOTAL) == 1.0


def test_without_a_step_there_is_nothing_to_hand_over():
    assert handovers(run(job("a", wanted=1))) == {}
