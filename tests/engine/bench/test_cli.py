from __future__ import annotations

import pytest

from engine.bench.__main__ import parsed
from engine.bench.kv import figures, policies, verdict
from engine.core.policy import REGIMES, regime
from tests.engine.bench.runs import job, run, step


def test_without_a_word_ten_agentic_jobs_are_run_under_all_six_regimes():
    options = parsed([])

    assert (options.workload, options.jobs, len(options.regimes)) == ("agentic", 10, 6)


def test_all_names_each_policy_once():
    policies = [tuple(REGIMES[name].items()) for name in parsed(["--regimes", "all"]).regimes]

    assert len(set(policies)) == len(policies) == len({tuple(one.items()) for one in REGIMES.values()})


def test_a_peers_load_is_run_as_it_is():
    options = parsed(["--workload", "peer-lm", "--jobs", "2", "--json", "f"])

    assert (options.regimes, options.jobs) == ((), 2)


@pytest.mark.parametrize("call", [["--regimes", "marlaas,none"], ["--jobs", "0"], ["--workload", "coding"]])
def test_a_bad_call_is_refused(call):
    with pytest.raises(SystemExit) as refusal:
        parsed(call)

    assert refusal.value.code == 2


def test_every_setting_of_the_cache_scenario_is_a_policy():
    made = {name: regime("marlaas", slots=12).changed(changes) for name, changes in policies().items()}

    assert [policy.max_rollouts for policy in made.values()] == [1, 2, 4, 8, None, None]
    assert [name for name, policy in made.items() if policy.adaptive] == ["adaptive"]


def test_the_cache_scenario_says_who_waited_longest():
    waited = run(
        job("a", step(1, 0, 0, 1, 0, 1, 0), step(2, 2, 0, 6, 0, 1, 0)), sampler_before={"preempted": 2}, sampler_after={"preempted": 5}
    )

    found = figures(waited)

    assert (found["longest_wait_s"], found["preempted"], found["steps_per_hour"]) == (7.0, 3, 800.0)


def test_adaptive_admission_is_held_against_the_best_fixed_setting():
    speeds = {"fixed-1": 100.0, "fixed-4": 200.0, "unlimited": 150.0, "adaptive": 190.0}

    said = verdict({name: {"steps_per_hour": speed, "preempted": 7} for name, speed in speeds.items()})

    assert (said["best_fixed"], said["adaptive_to_best_fixed"]) == ("fixed-4", 0.95)
