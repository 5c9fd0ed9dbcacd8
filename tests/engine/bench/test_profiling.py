from __future__ import annotations

import pytest

from engine.bench.profiling import SamplerTimes, TrainerTimes, assembled, lengths_of, overheads, synthetic
from engine.bench.requests import JobAsked, TurnAsked
from engine.bench.speeds import Timed
from engine.ports import TrainRequest
from engine.sim.bench_jobs import planned
from engine.sim.predict import predict
from engine.sim.profile import MeasuredLengths
from engine.trajectory import RolloutBatch, Trajectory, decode, encode
from tests.engine.bench.runs import job, run, step


def test_a_job_alone_shows_what_is_lost_between_its_phases():
    first = step(1, 1.0, 0, 2.0, 0, 0.5, 0.25, worked=(1.0, 0.5, 0.25))
    second = step(2, 3.75, 0.5, 2.0, 0, 0.5, 0.25, worked=(1.0, 0.5, 0.25))

    found = overheads(run(job("a", first, second, completion=7.25)), trained_alone=0.4)

    assert (found["rollout_start_seconds"], found["batch_ready_seconds"]) == (pytest.approx(0.5 + 0.125), pytest.approx(0.125))
    assert (found["train_start_seconds"], found["commit_seconds"]) == (pytest.approx(0.1), 0.25)
    assert (found["job_start_seconds"], found["job_end_seconds"], found["grade_seconds"]) == (1.0, 0.25, 0.25)


def test_lengths_are_means_over_turns_and_observations():
    episode = [TurnAsked(prompt_ids=[1, 2], new_tokens=3), TurnAsked(prompt_ids=[1, 2, 5, 6, 7, 9, 9], new_tokens=5)]
    asked = JobAsked(job="a", spec=None, adapter={}, steps=[[episode]], trainings=[])

    lengths = lengths_of(asked)

    assert (lengths.prompt_tokens, lengths.turn_tokens_mean, lengths.turn_tokens_std, lengths.observation_tokens) == (2, 4, 1, 2)


def test_a_synthetic_step_has_the_size_that_was_asked_for_and_something_to_learn():
    names = {"job": "a", "policy_version": 0, "attempt": 1}
    told = {"seed": 0, "text": "", "finish_reason": "stop", "reward": 1.0, "logprobs": [-1.0, -1.0]}
    one = Trajectory(**names, **told, load_id=1, row=7, sample=0, prompt_ids=[1], completion_ids=[5, 6])
    real = TrainRequest(
        job="a",
        version=0,
        attempt=1,
        spec=None,
        snapshot={},
        batch=encode(RolloutBatch(**names, group_size=2, trajectories=[one, one])),
        deadline_seconds=1.0,
    )

    made = decode(synthetic(real, completions=4, tokens=3).batch).trajectories

    assert [(each.row, each.sample, len(each.completion_ids), len(each.logprobs)) for each in made] == [
        (0, 0, 3, 3),
        (0, 1, 3, 3),
        (1, 0, 3, 3),
        (1, 1, 3, 3),
    ]
    assert {each.reward for each in made} == {0.0, 1.0}


def test_a_machines_profile_is_one_that_the_simulator_plays():
    batches = [
        Timed(sequences=sequences, adapters=adapters, prompt_tokens=8, new_tokens=tokens, seconds=(0.01 + 1e-4 * sequences * tokens,))
        for sequences, adapters in ((1, 1), (64, 1), (64, 2))
        for tokens in (8, 40)
    ]
    prefills = tuple(Timed(sequences=64, adapters=1, prompt_tokens=size, new_tokens=1, seconds=(size / 100,)) for size in (40, 200))
    sampled = SamplerTimes(batches=batches, prefills=prefills, loads=[0.02, 0.01, 0.03], max_sequences=1024)
    trained = TrainerTimes(real=[0.1, 0.1], sizes=[(1000, 0.1), (2000, 0.15)])
    model = {"name": "tiny-math", "kv_budget_bytes": 4096 * 1000, "kv_bytes_per_token": 4096}
    lengths = {"reasoning": MeasuredLengths(prompt_tokens=6, turn_tokens_mean=24)}
    alone = run(job("a", step(1, 1.0, 0, 2.0, 0, 0.5, 0.25, worked=(1.0, 0.5, 0.25)), completion=5.0))

    profile = assembled(alone, model, lengths, trained, sampled, sampling=1.2, training=1.1)

    assert profile.train_fixed_seconds == pytest.approx(0.05)
    assert (profile.adapter_load_seconds, profile.kv_capacity_tokens, len(profile.decode)) == (0.02, 1000, 3)
    assert predict(profile, planned("reasoning", 2), regimes=["marlaas"])["marlaas"]["wall_s"] > 0
