"""A batch read back as what it asked of the sampler."""

from __future__ import annotations

from engine.bench.loads import AGENTIC, REASONING
from engine.bench.requests import TurnAsked, episodes, spread
from engine.rollout.envs import wait_seconds
from engine.rollout.sampling import completion_seed
from engine.spec import JobSpec, parse_job
from engine.trajectory import RolloutBatch, Trajectory, Turn


def spec(load) -> JobSpec:
    dataset = {"version": "v", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 80}
    return parse_job(load.spec(dataset, seed=5))


def batch(completion_ids: list[int], turns: list[Turn]) -> RolloutBatch:
    names = {"job": "a", "policy_version": 3, "attempt": 1}
    told = {"seed": 0, "text": "", "finish_reason": "stop", "reward": 1.0, "logprobs": []}
    one = Trajectory(**names, **told, load_id=1, row=7, sample=2, prompt_ids=[1, 2], completion_ids=completion_ids, turns=turns)
    return RolloutBatch(**names, group_size=1, trajectories=[one])


def test_a_single_turn_asks_for_as_many_tokens_as_it_got():
    assert episodes(batch([5, 6, 7], []), spec(REASONING)) == [[TurnAsked(prompt_ids=[1, 2], new_tokens=3)]]


def test_each_turn_reads_all_that_was_said_before_and_waits_as_its_seed_says():
    turns = [Turn(sampled=2, added=1, text=""), Turn(sampled=1, added=1, text=""), Turn(sampled=1, added=0, text="")]
    agentic = spec(AGENTIC)

    (episode,) = episodes(batch([5, 6, 90, 7, 91, 8], turns), agentic)

    assert [(turn.prompt_ids, turn.new_tokens) for turn in episode] == [([1, 2], 2), ([1, 2, 5, 6, 90], 1), ([1, 2, 5, 6, 90, 7, 91], 1)]
    waits = [wait_seconds(agentic.environment.latency, completion_seed(5, 3, 7, 2, turn)) for turn in range(2)]
    assert [turn.tool_seconds for turn in episode] == [*waits, 0.0]


def test_a_few_steps_are_chosen_evenly_and_without_the_first():
    assert spread(10, 3) == [1, 5, 9]
    assert spread(2, 3) == [1]
    assert spread(1, 3) == [0]
    assert spread(10, 0) == []
