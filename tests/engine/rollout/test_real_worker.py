"""The whole replica on the real engine: rollouts of several jobs, evaluation, abort, and the end of the engine."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal

import pytest

from engine.ports import Aborted, SamplerDied
from engine.rewards.pool import GraderPool
from engine.rollout.sampling import SampleParams
from engine.trajectory import check_on_policy, decode
from tests.engine.rollout.fakes import eval_request, rollout_request, row

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]


def worker_over(sampler, base):
    from engine.rollout.tokens import ModelTokens
    from engine.rollout.worker import RolloutWorker

    return RolloutWorker(sampler=sampler, tokens=ModelTokens.load(base.path), grading=GraderPool())


def request(job, files, **changes):
    return dataclasses.replace(rollout_request(job, **changes), adapter_files=files)


async def test_two_jobs_roll_out_together_and_each_batch_is_on_policy(sampler, base, adapter_files):
    worker, files = worker_over(sampler, base), [adapter_files(31), adapter_files(32)]
    rows = [row(3, "1+2=", "3"), row(9, "max 3 4=", "4")]

    results = await asyncio.gather(
        *(worker.rollout(request(f"w{i}", files[i], rows=rows, group_size=8, max_new_tokens=12)) for i in range(2))
    )

    for i, result in enumerate(results):
        batch = decode(result.batch)
        check_on_policy(batch, job=f"w{i}", version=3, attempt=1)
        assert [(t.row, t.sample) for t in batch.trajectories] == [(r, s) for r in (3, 9) for s in range(8)]
        t = batch.trajectories[0]
        assert t.logprobs == pytest.approx(base.logprobs(files[i], t.prompt_ids, t.completion_ids, temperature=1.0), abs=1e-5)


async def test_a_redone_attempt_samples_the_same_tokens(sampler, base, adapter_files):
    worker, files = worker_over(sampler, base), adapter_files(33)

    first, second = [decode((await worker.rollout(request("w3", files, attempt=n))).batch) for n in (1, 2)]

    assert [t.completion_ids for t in first.trajectories] == [t.completion_ids for t in second.trajectories]


async def test_an_evaluation_is_greedy_and_repeats_itself(sampler, base, adapter_files):
    worker = worker_over(sampler, base)
    wanted = dataclasses.replace(eval_request("w4", rows=[row(n, f"{n}+2=") for n in range(5)]), adapter_files=adapter_files(34))

    first, second = [await worker.evaluate(wanted) for _ in range(2)]

    assert first.data["rows"] == 5
    assert first.rows == second.rows


async def test_abort_stops_generation_of_that_job(sampler, base, adapter_files, new_ref):
    worker = worker_over(sampler, base)
    long = request("w5", adapter_files(35), rows=[row(n) for n in range(4)], group_size=8, max_new_tokens=200, max_prompt_tokens=16)
    running = asyncio.create_task(worker.rollout(long))
    other = await sampler.load(new_ref(), adapter_files(36))
    while not sampler.stats()["running"]:
        await sampler.sample(other, [10, 20], SampleParams(max_new_tokens=1, temperature=1.0, seed=1))

    await worker.abort("w5")

    with pytest.raises(Aborted):
        await running
    await sampler.sample(other, [10, 20], SampleParams(max_new_tokens=2, temperature=1.0, seed=1))
    assert sampler.stats()["running"] <= 1


async def test_the_engine_core_lets_the_process_go_first_that_feeds_it(base, vllm_environment, folder):
    from engine.device import CALCULATES
    from engine.rollout.vllm_worker import VllmSampler
    from engine.runtime.process import children

    before = set(children())
    sampler = await VllmSampler.start(base.sampler_config(vllm_environment, folder))
    core = next(pid for pid in set(children(named="VLLM")) - before)

    assert os.getpriority(os.PRIO_PROCESS, core) == CALCULATES > os.getpriority(os.PRIO_PROCESS, os.getpid())
    await sampler.close()


async def test_the_end_of_the_engine_is_noticed(base, vllm_environment, adapter_files, new_ref, folder):
    from engine.rollout.vllm_worker import VllmSampler
    from engine.runtime.process import children

    before = set(children())
    sampler = await VllmSampler.start(base.sampler_config(vllm_environment, folder))
    core = [pid for pid in set(children(named="VLLM")) - before]
    ref = await sampler.load(new_ref(), adapter_files(37))
    running = asyncio.create_task(sampler.sample(ref, [10, 20], SampleParams(max_new_tokens=240, temperature=1.0, seed=1)))
    await asyncio.sleep(0)

    os.kill(core[0], signal.SIGKILL)

    with pytest.raises(SamplerDied):
        await running
    assert sampler.died.is_set()
    await sampler.close()
