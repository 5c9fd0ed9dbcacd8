"""The manager's ports over real Ray actors with fake workers inside: two samplers, and a trainer of two ranks."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from engine import logs
from engine.ports import AdapterRef, PortError, RolloutRequest, TrainRequest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

WORKERS = "tests.engine.runtime.fake_workers"


@dataclass
class Ports:
    pool: Any
    group: Any
    readiness: Any


@pytest.fixture(scope="module")
def actors(local_ray, ray_settings):
    import ray

    from engine.runtime.rollout_actor import RolloutActor
    from engine.runtime.train_actor import TrainActor

    def make(kind: type, number: int, factory: str) -> Any:
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": 0, "max_concurrency": 1000, "lifetime": "detached"}
        name = [f"trainer-{number}"] if kind is TrainActor else []
        return ray.remote(kind).options(name=f"{factory}-{number}", **options).remote(ray_settings, number, f"{WORKERS}:{factory}", *name)

    samplers = [make(RolloutActor, i, "FakeRolloutWorker") for i in range(2)]
    ranks = [make(TrainActor, i, "FakeTrainWorker") for i in range(2)]
    yield samplers, ranks
    for handle in samplers + ranks:
        ray.kill(handle)


_epochs = iter(range(1, 1000))


@pytest.fixture
async def ports(actors) -> AsyncIterator[Ports]:
    made = await ports_of(actors, next(_epochs))
    yield made
    await made.pool.close()
    await made.group.close()


async def ports_of(actors, epoch: int) -> Ports:
    from engine.runtime.readiness import Readiness
    from engine.runtime.rollout_pool import RolloutPool
    from engine.runtime.train_group import TrainGroup

    readiness = Readiness({"sampler": "…", "trainer": "…"})
    deadlines = {"epoch": epoch, "call_deadline_seconds": 30.0, "start_deadline_seconds": 150.0}
    made = Ports(RolloutPool(actors[0], readiness, **deadlines), TrainGroup(actors[1], readiness, **deadlines), readiness)
    await until_ready(made)
    return made


async def until_ready(ports: Ports) -> None:
    health = ports.readiness.health()
    async with asyncio.timeout(150):
        while not health.ok:
            health = await ports.readiness.next(health.revision, wait_seconds=150)
        for replica in ports.pool._replicas:  # it is ready with the first of them
            await replica.alive.wait()


def rollout(job: str) -> RolloutRequest:
    adapter = AdapterRef(tenant="t", job=job, version=0, load_id=1)
    return RolloutRequest(adapter=adapter, attempt=1, spec=None, rows=[], seed=0, adapter_files={"a": b"weights"}, deadline_seconds=30)


def step(job: str, weights: bytes = b"weights") -> TrainRequest:
    return TrainRequest(job=job, version=0, attempt=1, spec=None, snapshot={"a": weights}, batch=b"batch", deadline_seconds=30)


async def test_the_adapter_s_bytes_reach_the_sampler_and_the_batch_comes_back(ports):
    assert (await ports.pool.rollout(rollout("a"))).batch == b"weights"


async def test_a_refusal_keeps_who_pays_for_it(ports):
    with pytest.raises(PortError, match="no such adapter") as refused:
        await ports.pool.rollout(rollout("refused"))

    assert refused.value.attribution == "user"


async def test_a_bug_in_a_worker_is_the_platform_s_fault(ports):
    with pytest.raises(PortError, match="ValueError: a bug") as failed:
        await ports.pool.rollout(rollout("bug"))

    assert failed.value.attribution == "platform"


async def test_jobs_spread_over_the_samplers(ports):
    busy = asyncio.create_task(ports.pool.rollout(rollout("slow-one")))
    await asyncio.sleep(0)
    while not any(replica.outstanding for replica in ports.pool._replicas):
        await asyncio.sleep(0)
    other = await ports.pool.rollout(rollout("b"))

    busy_replica = next(replica for replica in ports.pool._replicas if replica.outstanding)
    assert other.summary["pid"] != busy_replica.process_id
    await ports.pool.abort("slow-one")
    with pytest.raises(PortError, match="aborted"):
        await busy


async def test_numbers_are_summed_over_the_samplers(ports):
    assert await ports.pool.stats() == {
        **{"replicas": 2, "replicas_alive": 2, "decode_steps": 20, "kv_used": 0.5},
        **{"kv_tokens": {"ten_a": 14}, "gradings": {}},
    }


@pytest.mark.parametrize("cause", ["kill", "died"])
async def test_work_on_a_dead_sampler_fails_soon_and_the_next_call_finds_a_living_one(ports, cause):
    lost = asyncio.create_task(ports.pool.rollout(rollout("doomed" if cause == "died" else "slow")))
    while not any(replica.outstanding for replica in ports.pool._replicas):
        await asyncio.sleep(0)
    if cause == "kill":
        os.kill(next(replica.process_id for replica in ports.pool._replicas if replica.outstanding), 9)

    with pytest.raises(PortError, match="died"):
        await asyncio.wait_for(lost, 20)
    assert (await ports.pool.rollout(rollout("a"))).batch == b"weights"


async def test_the_samplers_have_stopped_when_the_last_of_them_has_and_serve_with_the_first_that_is_back(ports):
    first, second = ports.pool._replicas
    os.kill(first.process_id, 9)
    while first.alive.is_set():
        await asyncio.sleep(0)
    assert ports.readiness.stopped() == {}

    os.kill(second.process_id, 9)
    while second.alive.is_set():
        await asyncio.sleep(0)
    assert [*ports.readiness.stopped()] == ([] if first.alive.is_set() else ["sampler"])
    await until_ready(ports)
    assert ports.readiness.stopped() == {}


async def test_all_ranks_form_one_group(ports):
    snapshot = await ports.group.fresh("a", None)

    assert snapshot["trainer.json"].startswith(b"a on 2 at tcp://127.0.0.1:")


async def test_only_the_first_rank_s_answer_counts(ports):
    result = await ports.group.step(step("a"))

    assert result.snapshot == {"a": b"weights"}


async def test_a_request_that_all_ranks_were_given_before_its_turn_is_not_sent_again(ports):
    await ports.group.prepare(step("a", b"sent before"))
    assert (await ports.group.step(step("a", b"sent again"))).snapshot == {"a": b"sent before"}
    assert (await ports.group.step(step("a", b"sent again"))).snapshot == {"a": b"sent again"}


async def test_a_request_that_is_overtaken_is_sent_in_its_turn(ports):
    await ports.group.prepare(step("a", b"sent before"))
    await ports.group.prepare(step("b", b"sent before"))
    assert (await ports.group.step(step("a", b"sent again"))).snapshot == {"a": b"sent again"}
    assert (await ports.group.step(step("b", b"sent again"))).snapshot == {"a": b"sent before"}


async def test_a_request_that_another_follows_while_its_turn_begins_is_trained(ports):
    """As the manager does it: the next is prepared the moment that this one is begun."""
    await ports.group.prepare(step("a", b"sent before"))
    for version, following in enumerate("bab"):
        this = "ab"[version % 2]
        trained, _ = await asyncio.gather(ports.group.step(step(this, b"sent again")), ports.group.prepare(step(following, b"sent before")))
        assert trained.snapshot["a"] in (b"sent before", b"sent again")


async def test_what_was_prepared_at_a_group_that_died_is_sent_again(ports):
    await ports.group.prepare(step("a", b"sent before"))
    with pytest.raises(PortError):
        await ports.group.step(step("die"))
    assert (await ports.group.step(step("a", b"sent again"))).snapshot == {"a": b"sent again"}


async def test_each_rank_s_lines_say_which_tenant_s_job_they_are_about(ports, ray_settings):
    with logs.about(tenant="ten_1", job="job_of_ten_1"):
        await ports.group.fresh("job_of_ten_1", None)
        await ports.group.step(step("job_of_ten_1"))
        await ports.group.prepare(step("job_of_ten_1"))
        await ports.group.step(step("job_of_ten_1"))

    for rank in range(2):
        told = (ray_settings.log_dir / f"engine-trainer-{rank}.log").read_text()
        assert told.count("makes version 0 tenant=ten_1 job=job_of_ten_1\n") == 1
        assert told.count("trains tenant=ten_1 job=job_of_ten_1\n") == 2


async def test_a_rank_s_death_fails_the_step_and_the_group_forms_anew(ports):
    before = (await ports.group.fresh("a", None))["trainer.json"]

    with pytest.raises(PortError, match="died"):
        await asyncio.wait_for(ports.group.step(step("die")), 20)

    after = (await ports.group.fresh("a", None))["trainer.json"]
    assert after.startswith(b"a on 2 at ")
    assert after != before


async def test_ranks_that_lost_a_peer_fail_the_step_and_the_group_forms_anew(ports):
    before = (await ports.group.fresh("a", None))["trainer.json"]

    with pytest.raises(PortError, match="reset by peer"):
        await asyncio.wait_for(ports.group.step(step("torn")), 20)

    assert (await ports.group.fresh("a", None))["trainer.json"] != before


async def test_a_new_manager_adopts_the_group_and_shuts_the_old_one_out(actors, ports):
    before = await ports.group.fresh("a", None)
    newer = await ports_of(actors, next(_epochs))

    assert await newer.group.fresh("a", None) == before
    with pytest.raises(PortError, match="has been followed by"):
        await ports.pool.rollout(rollout("a"))
    await newer.pool.close()
    await newer.group.close()
