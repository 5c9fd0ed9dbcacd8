"""Predictions for a measured machine: from a job's specification to wall seconds, worked by hand."""

from __future__ import annotations

import json

import pytest

from engine.core.policy import REGIMES
from engine.sim import __main__ as sim
from engine.sim.bench_jobs import planned, with_sampled
from engine.sim.predict import Planned, compare, predict, shape_of
from engine.sim.profile import MeasuredLengths, WaitDistribution, write
from engine.spec import parse_job
from tests.engine.sim.test_profile import profile

# An iteration of any batch takes 0.1 s, a training 2 s, a commit 0.5 s; all else is free.
MACHINE = profile(
    decode=[
        {"sequences": 64, "adapters": 1, "tokens_per_second": 640.0},
        {"sequences": 128, "adapters": 1, "tokens_per_second": 1280.0},
    ],
    max_sequences=10_000,
    prefill_tokens_per_second=1e12,
    seconds_per_request=0.0,
    seconds_per_request_batch=0.0,
    adapter_load_seconds=0.0,
    train_fixed_seconds=2.0,
    train_seconds_per_token=0.0,
    commit_seconds=0.5,
)


def spec(*, steps: int = 2, environment: dict | None = None, **rollout):
    return parse_job(
        {
            "base_model": "tiny-math",
            "dataset": {"version": "d", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 10},
            "grader": {"type": "string_check"},
            "rollout": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 21, "ignore_eos": True, **rollout},
            "environment": environment or {"type": "single_turn"},
            "train": {"steps": steps},
        }
    )


def tools(*, answer_turn: bool = True, tool_turns: int = 1) -> dict:
    latency = {"median_seconds": 3.0, "sigma": 0.0, "cap_seconds": 9.0}
    return {"type": "stand_in", "latency": latency, "tool_turns": tool_turns, "observation": "abc", "answer_turn": answer_turn}


def walls(*specs, machine=MACHINE) -> dict[str, float]:
    found = predict(machine, [Planned(kind="k", spec=one) for one in specs], regimes=list(REGIMES))
    return {name: figures["wall_s"] for name, figures in found.items()}


def test_a_job_alone_takes_the_same_in_every_regime():
    assert walls(spec()) == dict.fromkeys(REGIMES, 2 * (20 * 0.1 + 2.0 + 0.5))


def test_two_jobs_share_the_sampler_and_take_turns_at_the_trainer():
    found = walls(spec(), spec())
    assert found["single-disaggregated"] == pytest.approx(18.0)
    assert found["multi-lora-sync"] == pytest.approx(2 * (2.0 + 2 * 2.0 + 0.5))
    assert found["marlaas"] == pytest.approx(2.0 + 4 * 2.0 + 2 * 0.5)


def test_the_trainer_does_not_wait_for_commits():
    assert walls(*[spec()] * 4)["marlaas"] == pytest.approx(2.0 + 8 * 2.0 + 0.5)


def test_the_trainer_waits_for_the_start_of_a_step_only_where_nothing_was_at_hand():
    slow = MACHINE.model_copy(update={"train_start_seconds": 1.0})
    assert walls(*[spec()] * 4, machine=slow)["marlaas"] == pytest.approx(2.0 + 1.0 + 8 * 2.0 + 0.5)
    assert walls(spec(), machine=slow)["marlaas"] == pytest.approx(2 * (2.0 + 1.0 + 2.0 + 0.5))


def test_tools_stand_between_the_turns():
    assert walls(spec(steps=1, environment=tools(tool_turns=2)))["marlaas"] == pytest.approx(3 * 2.0 + 2 * 3.0 + 2.5)


def test_without_an_answer_turn_the_last_wait_ends_the_episode():
    assert walls(spec(steps=1, environment=tools(answer_turn=False)))["marlaas"] == pytest.approx(2.0 + 3.0 + 2.5)


def test_a_machines_own_tool_takes_its_own_time():
    measured = MACHINE.model_copy(update={"tool_wait": WaitDistribution(median_seconds=1.0, sigma=0.0, cap_seconds=1.0)})
    assert walls(spec(steps=1, environment=tools()), machine=measured)["marlaas"] == pytest.approx(2 * 2.0 + 1.0 + 2.5)


def test_measured_lengths_stand_for_the_limits():
    lengths = MeasuredLengths(prompt_tokens=6, turn_tokens_mean=4, observation_tokens=7)
    shape = shape_of(spec(environment=tools(), ignore_eos=False), lengths)
    assert (shape.prompt_tokens, shape.new_tokens.mean(), shape.tool_tokens) == (6, 4, 7)
    assert shape_of(spec(ignore_eos=True), lengths).new_tokens.mean() == 21


def test_an_environment_that_no_profile_describes_is_refused():
    search = spec(environment={"type": "tools"})
    with pytest.raises(ValueError, match="not part of a profile"):
        shape_of(search)


def test_the_benchs_jobs_alternate_as_the_bench_makes_them():
    jobs = planned("mixed", 4)
    assert [job.kind for job in jobs] == ["reasoning", "agentic", "slow-agentic", "reasoning"]
    assert {job.spec.rollout.prompts_per_step * job.spec.rollout.group_size for job in jobs} == {64}


def test_free_turns_are_as_long_as_they_were_sampled():
    jobs = planned("mixed", 3)
    turns = 64 * 10 * 3
    sampled = 20 * 64 * 24 + 2 * turns * 4
    known = with_sampled(jobs, {"marlaas": {"tokens_sampled": sampled, "measured_share": 1.0}})
    assert [job.lengths.turn_tokens_mean for job in known] == [24, 4, 4]


def test_a_run_that_was_cut_says_nothing_of_lengths():
    jobs = planned("agentic", 1)
    assert with_sampled(jobs, {"marlaas": {"tokens_sampled": 100, "measured_share": 0.4}}) == jobs


def test_the_measured_wall_stands_beside_the_predicted_one():
    found = compare({"marlaas": {"wall_s": 11.0}, "no-async": {"wall_s": 5.0}}, {"marlaas": {"wall_s": 10.0}, "_meta": {}})
    assert found["marlaas"] == {"wall_s": 11.0, "measured_wall_s": 10.0, "error": 0.1, "within_20_percent": True}
    assert found["no-async"] == {"wall_s": 5.0}


def test_the_command_predicts_every_regime(tmp_path, capsys):
    write(tmp_path / "profile.json", MACHINE)
    (tmp_path / "bench.json").write_text(json.dumps({"marlaas": {"wall_s": 10.0}}))
    files = ["--profile", str(tmp_path / "profile.json"), "--measured", str(tmp_path / "bench.json")]
    assert sim.main(["predict", *files, "--workload", "agentic", "--jobs", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == set(REGIMES)
    assert "error" in found["marlaas"]


def test_a_profile_that_cannot_be_read_is_named(tmp_path, capsys):
    assert sim.main(["predict", "--profile", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capsys.readouterr().err
