"""What a simulated step consists of."""

from __future__ import annotations

import random
from dataclasses import replace
from statistics import mean

import pytest

from engine.sim.paper import GSM8K, SEARCH, WORKLOADS
from engine.sim.workload import cohorts, replicas
from tests.engine.sim.shapes import always, job, shape


def step(of, seed: int = 0):
    return cohorts(of, random.Random(seed))


@pytest.mark.parametrize("name", sorted(WORKLOADS))
def test_every_sequence_is_in_exactly_one_cohort(name):
    for of in WORKLOADS[name]:
        assert sum(cohort.sequences for cohort in step(of)) == of.sequences == of.prompts_per_step * of.group_size


def test_a_handful_of_sequences_are_drawn_one_by_one():
    assert [cohort.sequences for cohort in step(replace(GSM8K, prompts_per_step=1))] == [1] * 8


def test_the_mean_length_is_that_of_the_distribution():
    lengths = [mean_of(step(GSM8K, seed)) for seed in range(20)]
    assert mean(lengths) == pytest.approx(GSM8K.new_tokens.mean(), rel=0.02)


def mean_of(found) -> float:
    return sum(c.sequences * c.sampled_tokens for c in found) / sum(c.sequences for c in found)


def test_the_mean_number_of_tool_calls_is_that_of_the_shares():
    found = step(SEARCH)
    calls = sum(c.sequences * (len(c.turns) - 1) for c in found) / SEARCH.sequences
    assert calls == pytest.approx(sum(k * share for k, share in enumerate(SEARCH.call_shares)), rel=0.03)


def test_the_longest_of_a_step_is_near_the_cap():
    longest = max(cohort.sampled_tokens for cohort in step(GSM8K))
    assert 1000 < longest <= GSM8K.max_new_tokens


def test_a_context_grows_by_what_is_sampled_and_what_the_tool_says():
    of = shape(decode_seconds=9.0, call_shares=(0.0, 1.0), tool_tokens=5, prompt_tokens=3)
    first, second = step(of)[0].turns
    assert (first.context_tokens, second.context_tokens, step(of)[0].tokens) == (3, 3 + 10 + 5, 3 + 10 + 5 + 10)


def test_without_a_prefix_cache_every_turn_prefills_its_whole_context():
    of = shape(decode_seconds=9.0, call_shares=(0.0, 1.0), tool_tokens=5, prompt_tokens=3, prefix_cached=False)
    assert [turn.prefill_tokens for turn in step(of)[0].turns] == [3, 18]


def test_a_group_prefills_its_prompt_once():
    first = step(replace(shape(new_tokens=always(5)), group_size=4, prompt_tokens=8))[0].turns[0]
    assert first.prefill_tokens == 2


def test_no_episode_samples_more_than_it_may():
    assert all(c.sampled_tokens <= SEARCH.max_new_tokens for seed in range(50) for c in step(SEARCH, seed))


def test_a_step_is_a_pure_function_of_seed_version_and_attempt():
    one = replicas([GSM8K], jobs=1, steps=3)[0]
    assert one.cohorts(1) == one.cohorts(1)
    tails = {one.cohorts(1)[-2:][0], one.cohorts(2)[-2], one.cohorts(1, attempt=2)[-2], replace(one, seed=9).cohorts(1)[-2]}
    assert len(tails) == 4


def test_a_workload_has_as_many_jobs_as_asked_for_each_of_its_own_name():
    made = replicas(WORKLOADS["mixed"], jobs=7, steps=3)
    assert len({j.job for j in made}) == 7
    assert [j.shape for j in made[:4]] == [*WORKLOADS["mixed"], WORKLOADS["mixed"][0]]


def test_a_submission_carries_what_the_scheduler_needs():
    fact = job("a", steps=3, eval_seconds=1.0, submitted_at=5.0).submission(6.0)
    assert (fact.at, fact.job, fact.steps, fact.eval_ends) == (6.0, "a", 3, True)
