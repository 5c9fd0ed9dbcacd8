from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import pytest

from engine import evaluation
from engine.grader_spec import SamplingParams
from engine.ports import Aborted, JudgeQuestion, PortError
from engine.rollout.judge import BaseJudge
from engine.rollout.sampling import EVALUATION_PRIORITY, PROBE_PRIORITY, ROLLOUT_PRIORITY
from engine.rollout.worker import RolloutWorker, closed_unless_built
from engine.trajectory import check_on_policy, decode
from tests.engine.rollout.fakes import FakeClock, FakeGrading, FakeSampler, FakeTokens, eval_request, rollout_request, row


def worker(sampler: FakeSampler) -> RolloutWorker:
    return RolloutWorker(sampler=sampler, tokens=FakeTokens(), grading=FakeGrading(), clock=FakeClock())


async def until_sampling(sampler: FakeSampler, count: int) -> None:
    while sampler.active < count:
        await asyncio.sleep(0)


async def test_a_rollout_returns_the_whole_batch_on_policy():
    result = await worker(FakeSampler()).rollout(rollout_request(version=3, attempt=2))
    batch = decode(result.batch)

    check_on_policy(batch, job="a", version=3, attempt=2)
    assert (len(batch.trajectories), batch.group_size, batch.summary) == (4, 2, result.summary)


async def test_an_adapter_loaded_by_an_earlier_attempt_is_named_by_its_own_load():
    workers = worker(FakeSampler())
    await workers.rollout(rollout_request(attempt=1, load_id=17))

    batch = decode((await workers.rollout(rollout_request(attempt=2, load_id=40))).batch)

    assert {t.load_id for t in batch.trajectories} == {17}


async def test_a_probe_samples_the_base_model_behind_everything_else_and_loads_nothing():
    sampler = FakeSampler()
    request = rollout_request("probe/p1", version=0)
    base = replace(request, adapter=replace(request.adapter, base=True), adapter_files={})

    batch = decode((await worker(sampler).rollout(base)).batch)

    assert (len(batch.trajectories), sampler.refs) == (4, [])
    assert {(ref.base, params.priority) for ref, _, params in sampler.asked} == {(True, PROBE_PRIORITY)}
    assert PROBE_PRIORITY > EVALUATION_PRIORITY


async def test_jobs_sample_at_the_same_time():
    sampler = FakeSampler()
    sampler.hold = asyncio.Event()
    workers = worker(sampler)
    both = asyncio.gather(workers.rollout(rollout_request("a")), workers.rollout(rollout_request("b")))

    await until_sampling(sampler, 8)
    assert (await workers.stats())["jobs_sampling"] == 2
    sampler.hold.set()
    await both


async def test_abort_ends_one_job_and_leaves_the_others():
    sampler = FakeSampler()
    sampler.hold = asyncio.Event()
    workers = worker(sampler)
    a, b = (asyncio.create_task(workers.rollout(rollout_request(job))) for job in "ab")
    await until_sampling(sampler, 8)

    await workers.abort("a")

    assert sampler.active == 4
    with pytest.raises(Aborted):
        await a
    sampler.hold.set()
    assert (await b).summary["completions"] == 4


async def test_abort_of_an_unknown_job_is_no_error():
    await worker(FakeSampler()).abort("nobody")


async def test_a_caller_that_goes_away_takes_its_samples_along():
    sampler = FakeSampler()
    sampler.hold = asyncio.Event()
    call = asyncio.create_task(worker(sampler).rollout(rollout_request()))
    await until_sampling(sampler, 4)

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)

    assert (call.cancelled(), sampler.active) == (True, 0)


async def test_a_rollout_past_its_deadline_fails_and_leaves_nothing_running():
    sampler = FakeSampler()
    sampler.hold = asyncio.Event()

    with pytest.raises(PortError, match=r"took longer than 0.01 s"):
        await worker(sampler).rollout(rollout_request(deadline_seconds=0.01))

    assert sampler.active == 0


async def test_an_evaluation_samples_each_row_once_behind_the_rollouts():
    sampler = FakeSampler()
    workers = worker(sampler)
    await workers.rollout(rollout_request())
    rollouts = len(sampler.asked)

    result = await workers.evaluate(eval_request(rows=[row(n) for n in range(5)]))

    data, kept = result.data, evaluation.decode(result.rows)
    assert (data["rows"], data["reward_mean"], data["version"], data["temperature"]) == (5, 1.0, 3, 0.0)
    assert {p.priority for _, _, p in sampler.asked[:rollouts]} == {ROLLOUT_PRIORITY}
    assert {p.priority for _, _, p in sampler.asked[rollouts:]} == {EVALUATION_PRIORITY}
    assert EVALUATION_PRIORITY > ROLLOUT_PRIORITY
    assert (kept.version, kept.rewards) == (3, dict.fromkeys(range(5), 1.0))
    assert all(r.text and r.sampled_tokens for r in kept.rows)


async def test_unload_keeps_the_version_that_is_asked_for():
    sampler = FakeSampler()
    workers = worker(sampler)
    for version in (1, 2):
        await workers.rollout(rollout_request(version=version))

    await workers.unload("a", keep_version=2)

    assert [ref.version for ref in sampler.refs] == [2]


def test_its_errors_survive_the_way_between_processes():
    error = pickle.loads(pickle.dumps(PortError("row 3 is too long", attribution="user")))

    assert (error.reason, error.attribution) == ("row 3 is too long", "user")


async def test_prompts_are_counted_as_they_will_be_rendered():
    workers = worker(FakeSampler())
    chats = [[{"role": "user", "content": text}] for text in ("1+1=", "10+10=")]
    assert await workers.prompt_tokens(chats) == [len(workers._tools.tokens.render(chat)) for chat in chats]


def judging(sampler: FakeSampler) -> RolloutWorker:
    judge = BaseJudge(sampler=sampler, tokens=FakeTokens(), context_tokens=100, priority=PROBE_PRIORITY)
    return RolloutWorker(sampler=sampler, tokens=FakeTokens(), grading=FakeGrading(), clock=FakeClock(), judge=judge)


def question(text: str = "grade 42") -> JudgeQuestion:
    return JudgeQuestion(owner="alice/lab", messages=[{"role": "user", "content": text}], schema={}, params=SamplingParams())


async def test_who_grades_outside_of_a_rollout_may_ask_the_base_model_too():
    sampler = FakeSampler()
    answer = await judging(sampler).judge(question())

    assert (answer.text, answer.tokens) == ("42", len("grade 42") + 2)
    assert sampler.asked[0][2].priority == PROBE_PRIORITY


async def test_a_verdict_that_failed_comes_back_as_a_port_error_that_says_whether_to_ask_again():
    with pytest.raises(PortError, match="shorten it") as failed:
        await judging(FakeSampler()).judge(question("x" * 100))

    assert failed.value.attribution == "user"
    with pytest.raises(PortError, match="judges nothing"):
        await worker(FakeSampler()).judge(question())


async def test_a_sampler_on_which_nothing_could_be_built_is_closed():
    sampler = FakeSampler()
    with pytest.raises(ValueError, match="no grading"):
        async with closed_unless_built(sampler):
            raise ValueError("no grading")
    assert sampler.died.is_set()
