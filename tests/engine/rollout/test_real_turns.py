"""Episodes of several turns on the real engine and the real trainer: the ids that are trained on are the ids that were sampled."""

from __future__ import annotations

import dataclasses

import pytest

from engine.rewards.pool import GraderPool
from engine.spec import JobSpec, parse_job
from engine.trajectory import Trajectory, decode
from tests.engine.rollout.fakes import rollout_request, row

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

OBSERVATION = "the town of Elmford lies on the river Brade, says the almanac; its mill is older than its church. "
STAND_IN = {"type": "stand_in", "tool_turns": 2, "latency": {"median_seconds": 0.001}, "observation": OBSERVATION}


class Recorder:
    """Passes each request on to the real sampler and keeps what was asked and answered, by the request's seed."""

    def __init__(self, sampler):
        self._sampler = sampler
        self.died = sampler.died
        self.prompts: dict[int, list[int]] = {}
        self.answers: dict[int, list[int]] = {}

    async def load(self, ref, files):
        return await self._sampler.load(ref, files)

    async def sample(self, adapter, prompt_ids, params):
        sampled = await self._sampler.sample(adapter, prompt_ids, params)
        self.prompts[params.seed], self.answers[params.seed] = prompt_ids, sampled.completion_ids
        return sampled


def spec_of(job: JobSpec, **changes) -> JobSpec:
    raw = job.model_dump(mode="json")
    rollout = {"max_prompt_tokens": 64, "max_new_tokens": 20, "prompts_per_step": 2, "group_size": 4, "temperature": 0.7}
    environment = STAND_IN | {"max_observation_tokens": 60}
    return parse_job(raw | {"environment": environment, "rollout": raw["rollout"] | rollout} | changes)


async def roll_out(sampler, base, files, job: str) -> tuple[Recorder, list[Trajectory], dict, bytes]:
    from engine.rollout.tokens import ModelTokens
    from engine.rollout.worker import RolloutWorker

    recorder = Recorder(sampler)
    worker = RolloutWorker(sampler=recorder, tokens=ModelTokens.load(base.path), grading=GraderPool())
    request = rollout_request(job, version=1, rows=[row(3, "1+2=", "3"), row(9, "a question that is a good deal longer=", "4")])
    request = dataclasses.replace(request, spec=spec_of(request.spec), adapter_files=files)
    result = await worker.rollout(request)
    return recorder, decode(result.batch).trajectories, result.summary, result.batch


def turn_by_turn(t: Trajectory) -> list[tuple[list[int], list[int]]]:
    """(ids before the turn, ids sampled in it) of each turn."""
    ids, at, found = t.prompt_ids + t.completion_ids, len(t.prompt_ids), []
    for turn in t.turns:
        found.append((ids[:at], ids[at : at + turn.sampled]))
        at += turn.sampled + turn.added
    return found


async def test_ids_of_all_turns_survive_byte_for_byte(sampler, base, adapter_files):
    recorder, trajectories, _, _ = await roll_out(sampler, base, adapter_files(41), "turns-ids")
    stored = sorted(turn for t in trajectories for turn in turn_by_turn(t))

    assert sorted((recorder.prompts[seed], recorder.answers[seed]) for seed in recorder.prompts) == stored
    assert len(stored) == 8 * 3


async def test_log_probabilities_are_those_of_the_sampled_tokens_after_tool_text(sampler, base, adapter_files):
    files = adapter_files(42)
    _, (t, *_), _, _ = await roll_out(sampler, base, files, "turns-logprobs")
    every = base.logprobs(files, t.prompt_ids, t.completion_ids, temperature=0.7)
    sampled = [logprob for logprob, yes in zip(every, t.sampled_mask(), strict=True) if yes]

    assert len(sampled) < len(every)
    assert t.logprobs == pytest.approx(sampled, abs=1e-5)


async def test_a_turn_finds_the_turns_before_it_in_the_cache(sampler, base, adapter_files):
    _, trajectories, summary, _ = await roll_out(sampler, base, adapter_files(43), "turns-cache")

    assert summary["cached_tokens"] > 0
    assert summary["env_tokens"] == sum(t.added_tokens for t in trajectories) == 8 * 2 * 60


async def test_the_trainer_finds_what_the_sampler_sampled_and_nothing_of_the_tools(sampler, base, one_rank):
    from engine.ports import TrainRequest
    from engine.train.worker import TrainWorker
    from tests.engine.train.recorded import make_request

    trainer, job = TrainWorker(base.path), "turns-train"
    spec = spec_of(rollout_request(job).spec, lora={"rank": 8, "alpha": 32}, train={"learning_rate": 1e-2})
    moved = trainer.step(make_request(job, spec, trainer.fresh(job, spec))).snapshot
    _, trajectories, _, batch = await roll_out(sampler, base, moved, job)

    request = TrainRequest(job=job, version=1, attempt=1, spec=spec, snapshot=moved, batch=batch, deadline_seconds=60.0)
    metrics = trainer.step(request).metrics

    assert metrics["mismatch_kl"] < 1e-5
    assert metrics["max_ratio"] < 1.001
    assert metrics["certificate"]["on_policy"] == len(trajectories)
