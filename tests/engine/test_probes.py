from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine.errors import Conflict, Invalid, NotFound
from engine.ports import PortError
from tests.engine.world import World


def order(world: World, **changes: Any) -> dict[str, Any]:
    spec = world.submission()["spec"]
    return {"tenant": "ten_a", "spec": {**spec, "rollout": {**spec["rollout"], "group_size": 4}}, "rows": 6, **changes}


async def over(world: World, probe: str) -> dict[str, Any]:
    """The probe once it has ended and nothing of it is with the sampler."""
    await world.until(lambda: world.manager._probes.state(probe)["state"] not in ("waiting", "running"))
    await world.until(lambda: bool(world.script.made("unload", f"probe/{probe}")))
    return await world.manager.probe_state(probe)


async def test_it_samples_rows_of_the_base_model_and_makes_a_forecast_of_them(world):
    assert (await world.manager.probe("p1", order(world)))["total"] == 24

    found = await over(world, "p1")
    result = found["result"]

    assert (found["state"], found["done"], found["error"]) == ("done", 24, None)
    assert (result["rows"], result["completions"], result["group_size"]) == (6, 24, 4)
    assert result["step"]["completions"] == 16
    assert result["job"]["steps"] == 2
    assert (result["lengths"]["mean"], result["step"]["tokens"]["sampled"], result["step"]["tokens"]["prefill"]) == (4.0, 64, 32)
    assert len(result["examples"]) == 6
    assert {call.version for call in world.script.made("rollout")} == {0}
    assert found["used"] == {"prompt_tokens": 48, "env_tokens": 0, "cached_tokens": 0, "sampled_tokens": 96, "judge_tokens": 0}


async def test_the_same_again_is_no_second_probe_and_another_body_is_refused(world):
    gate = world.script.gate("rollout", "probe/p1")
    await world.manager.probe("p1", order(world))
    await world.manager.probe("p1", order(world))
    gate.set()
    await over(world, "p1")

    assert len(world.script.made("rollout")) == 6
    with pytest.raises(Conflict, match="another body"):
        await world.manager.probe("p1", order(world, rows=5))


async def test_two_draws_of_rows_are_the_same_and_not_the_first_ones(world):
    for name in ("p1", "p2"):
        await world.manager.probe(name, order(world))
        await over(world, name)
    first, second = [[e["row"] for e in world.manager._probes.state(name)["result"]["examples"]] for name in ("p1", "p2")]

    assert first == second != sorted(first)


@pytest.mark.parametrize(
    ("change", "field"),
    [({"rows": 0}, "rows"), ({"tenant": ""}, "tenant"), ({"spec": {}}, "spec.base_model"), ({"what": 1}, "what")],
)
async def test_a_bad_order_is_refused_with_its_field(world, change, field):
    with pytest.raises(Invalid) as refused:
        await world.manager.probe("p1", {**order(world), **change})

    assert field in [name for name, _ in refused.value.problems]


async def test_more_completions_than_a_probe_may_have_are_refused_with_what_is_allowed(world):
    big = order(world)
    big["spec"]["rollout"]["group_size"] = 256
    big["spec"]["dataset"]["train_rows"] = 100
    with pytest.raises(Invalid, match="at most 32 rows at a group of 256"):
        await world.manager.probe("p1", {**big, "rows": 64})


async def test_what_no_job_could_run_no_probe_may(world):
    bad = order(world)
    bad["spec"]["rollout"]["max_new_tokens"] = 5000
    with pytest.raises(Invalid, match="may take 128 tokens"):
        await world.manager.probe("p1", bad)
    with pytest.raises(NotFound):
        await world.manager.probe_state("p1")


async def test_cancelling_ends_what_is_with_the_sampler(world):
    world.script.gate("rollout", "probe/p1")
    await world.manager.probe("p1", order(world))
    await world.called("rollout", "probe/p1")

    assert (await world.manager.cancel_probe("p1"))["state"] == "cancelled"
    assert (await world.manager.cancel_probe("p1"))["state"] == "cancelled"
    assert world.script.made("abort", "probe/p1")
    assert world.rollout.running == []


async def test_a_probe_past_its_deadline_fails_with_advice(world):
    world.script.gate("rollout", "probe/p1")
    await world.manager.probe("p1", order(world, deadline_seconds=0.01))

    found = await over(world, "p1")

    assert found["state"] == "failed"
    assert "ask for fewer rows" in found["error"]["reason"]
    assert world.script.made("abort", "probe/p1")


async def test_a_row_that_the_platform_lost_is_sampled_once_more(world):
    world.script.fail("rollout", "probe/p1", 0)
    await world.manager.probe("p1", order(world))

    assert (await over(world, "p1"))["state"] == "done"
    assert len(world.script.made("rollout")) == 7


async def test_a_tenants_own_fault_is_told_and_not_tried_again(world):
    world.script.fail("rollout", "probe/p1", 0, error=PortError("row 3 has a prompt of 99 tokens", attribution="user"), times=9)
    await world.manager.probe("p1", order(world))

    assert (await over(world, "p1"))["error"] == {"reason": "row 3 has a prompt of 99 tokens", "attribution": "user"}
    assert len(world.script.made("rollout")) <= 6


async def test_a_tenants_third_probe_at_once_is_refused_and_anothers_is_not(world):
    for name in ("p1", "p2"):
        world.script.gate("rollout", f"probe/{name}")
        await world.manager.probe(name, order(world))
    with pytest.raises(Conflict, match="cancel it"):
        await world.manager.probe("p3", order(world))

    assert (await world.manager.probe("p4", order(world, tenant="ten_b")))["state"] == "waiting"


async def test_none_begins_while_the_operator_lets_no_new_work_begin(world):
    await world.manager.set_admission("pause")
    with pytest.raises(Conflict, match="operator has paused"):
        await world.manager.probe("p1", order(world))


async def test_a_job_goes_on_beside_a_probe(world):
    gate = world.script.gate("rollout", "probe/p1")
    await world.manager.probe("p1", order(world))
    await world.submit("a")

    assert (await world.ended("a"))["a"]["state"] == "succeeded"
    assert (await world.manager.probe_state("p1"))["state"] == "running"
    gate.set()
    assert (await over(world, "p1"))["state"] == "done"


async def test_time_is_known_once_a_step_has_been_trained_here(world):
    await world.manager.probe("p1", order(world))
    before = (await over(world, "p1"))["result"]
    await world.submit("a")
    await world.ended("a")
    await world.manager.probe("p2", order(world))
    after = (await over(world, "p2"))["result"]

    assert (before["step"]["seconds"]["train"], before["job"]["seconds"]) == (None, None)
    assert after["step"]["seconds"]["train"] > 0
    assert after["job"]["seconds"] == pytest.approx(2 * sum(after["step"]["seconds"].values()))


async def test_a_new_manager_knows_the_pace_but_no_probe(world):
    await world.submit("a")
    await world.ended("a")
    await world.manager.stop()
    await world.open()

    with pytest.raises(NotFound):
        await world.manager.probe_state("p1")
    assert world.manager._history.pace.train_seconds_per_token is not None


async def test_few_of_its_completions_are_with_the_sampler_at_once(world):
    world.script.gate("rollout", "probe/p1")
    wide = order(world, rows=20)
    wide["spec"]["rollout"]["group_size"] = 64
    await world.manager.probe("p1", wide)
    await world.called("rollout", "probe/p1")
    for _ in range(50):
        await asyncio.sleep(0)

    assert len(world.script.made("rollout")) == 1
