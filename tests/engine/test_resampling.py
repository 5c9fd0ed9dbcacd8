"""Groups without signal give way to the next prompts: bounded, in the order of the data, counted, and the same after every restart."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine.audit import audit
from engine.data import draw_rows, position_at, step_rows
from engine.ports import RolloutResult
from engine.resampling import has_signal
from engine.sim.fakes import FakeRolloutPort, fake_batch
from engine.spec import parse_job
from engine.trajectory import decode, encode
from tests.engine.test_restart import FixedRollouts, die, versions
from tests.engine.world import World

ROLLOUT = {"prompts_per_step": 4, "group_size": 2, "max_prompt_tokens": 8, "max_new_tokens": 8}


class Alike(FakeRolloutPort):
    """Completions of these rows all score alike; all others differ."""

    def __init__(self, script, silent) -> None:
        super().__init__(script)
        self.silent = silent
        self.asked: list[tuple[int, int, list[int]]] = []

    async def rollout(self, request):
        self.asked.append((request.adapter.version, request.attempt, [row.row for row in request.rows]))
        await super().rollout(request)
        batch = fake_batch(request)
        graded = [replaced(t, 0.0 if t.row in self.silent else float(t.sample)) for t in batch.trajectories]
        summary = {**batch.summary, "judge_tokens": 5 * len(graded)}
        return RolloutResult(batch=encode(type(batch)(**{**fields(batch), "trajectories": graded})), summary=summary)


def fields(struct):
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def replaced(trajectory, reward):
    return type(trajectory)(**{**fields(trajectory), "reward": reward})


def world_of(tmp_path, silent, **changes) -> World:
    world = World(tmp_path)
    world.rollout = Alike(world.script, silent)
    world.train = FixedRollouts(world.script)
    return world


def submission(world: World, *, rounds: int, steps: int = 2, **rollout):
    raw = world.submission(steps=steps)
    raw["spec"]["rollout"] = {**ROLLOUT, "max_resamples": rounds, **rollout}
    return raw


async def played(world: World, raw) -> None:
    await world.open()
    await world.manager.submit("job_a", raw)
    await world.ended("job_a")


def batch_of(world: World, version: int):
    return decode(world.manager._store.read_rollout("job_a", version, 1))


# The order of prompts


def test_the_order_goes_on_where_the_step_ends():
    first, place = draw_rows(20, 4, 0, first=0, count=4)
    more, after = draw_rows(20, 4, 0, first=place, count=3, without=first)
    assert (first, place, after) == (step_rows(20, 4, 0, 0), 4, 7)
    assert more == step_rows(20, 4, 0, 1)[:3]


def test_a_step_holds_no_row_twice_even_over_the_end_of_an_epoch():
    for start in range(40):
        drawn, _ = draw_rows(10, 4, 3, first=start, count=6)
        more, _ = draw_rows(10, 4, 3, first=start + 6, count=4, without=drawn)
        assert len({*drawn, *more}) == len(drawn) + len(more) >= 9


def test_a_dataset_that_has_no_other_rows_gives_none_and_stays_where_it_is():
    assert draw_rows(4, 4, 0, first=4, count=2, without=[0, 1, 2, 3]) == ([], 4)
    assert position_at(4, 4, 0, 9) in range(4)


# What a group is worth


def group(*rewards, finish_reason="stop"):
    lengths = range(4, 4 + len(rewards))
    made = zip(rewards, lengths, strict=True)
    return [SimpleNamespace(reward=r, turns=[], completion_ids=[0] * n, finish_reason=finish_reason) for r, n in made]


def spec_of(tmp_path, **train):
    raw = World(tmp_path).submission()["spec"]
    return parse_job({**raw, "train": {**raw["train"], **train}})


def test_a_group_has_signal_when_two_gradings_differ(tmp_path):
    spec = spec_of(tmp_path)
    assert has_signal(group(0.0, 1.0), spec) and has_signal(group(None, 0.0, 0.5), spec)
    assert not any(has_signal(some, spec) for some in (group(1.0, 1.0), group(0.0, None), group(None, None)))


def test_signal_is_what_the_trainer_will_see(tmp_path):
    """Its penalty for length tells apart what the reward does not, and what is masked trains nothing."""
    penalised = spec_of(tmp_path, overlong_buffer_tokens=8, overlong_penalty=1.0)
    masked = spec_of(tmp_path, mask_truncated=True)
    assert has_signal(group(1.0, 1.0), penalised)
    assert not has_signal(group(0.0, 1.0, finish_reason="length"), masked)


# Steps


@pytest.mark.asyncio
async def test_without_rounds_a_step_is_what_it_was(tmp_path):
    world = world_of(tmp_path, silent=range(20))
    await played(world, submission(world, rounds=0))
    assert [(version, len(rows)) for version, _, rows in world.rollout.asked] == [(0, 4), (1, 4)]
    assert "resample_rounds" not in world.events("job_a", "step")[0].data["rollout"]
    await world.manager.stop()


@pytest.mark.asyncio
async def test_silent_groups_give_way_to_the_next_prompts_in_order(tmp_path):
    order = [position_at(20, 4, 0, place) for place in range(20)]
    world = world_of(tmp_path, silent={order[1], order[2], order[4]})
    await played(world, submission(world, rounds=5, steps=1))
    assert [rows for _, _, rows in world.rollout.asked] == [order[:4], order[4:6], order[6:7]]
    batch = batch_of(world, 0)
    assert [t.row for t in batch.trajectories[::2]] == [order[0], order[3], order[5], order[6]]
    assert [t.row for t in batch.dropped[::2]] == [order[1], order[2], order[4]]
    await world.manager.stop()


@pytest.mark.asyncio
async def test_everything_sampled_is_counted_and_all_of_it_is_proven(tmp_path):
    order = [position_at(20, 4, 0, place) for place in range(20)]
    world = world_of(tmp_path, silent={order[1], order[2], order[4]})
    await played(world, submission(world, rounds=5, steps=1))
    (step,) = (event.data for event in world.events("job_a", "step"))
    summary, certificate = step["rollout"], step["certificate"]
    assert (summary["completions"], summary["groups"], summary["groups_all_wrong"]) == (14, 7, 3)
    assert (summary["resample_rounds"], summary["groups_dropped"], summary["prompts_drawn"]) == (2, 3, 7)
    assert summary["reward_mean"] == pytest.approx(4 / 14)  # of all that was sampled, not of the chosen
    assert step["tokens"]["sampled"] == summary["sampled_tokens"] == 14 * 4
    assert step["tokens"]["judge"] == summary["judge_tokens"] == 14 * 5
    assert (certificate["completions"], certificate["on_policy"], certificate["sampled"]) == (8, 8, 14)
    assert audit(world.root / "engine") == []
    await world.manager.stop()


@pytest.mark.asyncio
async def test_the_next_step_begins_behind_what_was_drawn(tmp_path):
    order = [position_at(20, 4, 0, place) for place in range(20)]
    world = world_of(tmp_path, silent={order[0]})
    await played(world, submission(world, rounds=3, steps=2))
    assert [rows for _, _, rows in world.rollout.asked] == [order[:4], order[4:5], order[5:9]]
    page = await world.manager.rollouts("job_a", 1, offset=0, limit=100)
    assert {t["prompt"] for t in page["trajectories"]} == {f"{row}+1=" for row in order[5:9]}
    await world.manager.stop()


@pytest.mark.asyncio
async def test_the_rounds_are_bounded_and_the_batch_is_whole_all_the_same(tmp_path):
    world = world_of(tmp_path, silent=range(20))
    await played(world, submission(world, rounds=2, steps=1))
    assert [len(rows) for _, _, rows in world.rollout.asked] == [4, 4, 4]
    batch = batch_of(world, 0)
    assert (len(batch.trajectories), len(batch.dropped)) == (8, 16)
    assert [t.row for t in batch.trajectories[::2]] == world.rollout.asked[0][2]
    await world.manager.stop()


@pytest.mark.asyncio
async def test_rounds_end_when_the_dataset_has_no_other_prompts(tmp_path):
    world = world_of(tmp_path, silent=range(20))
    await played(world, submission(world, rounds=10, steps=1, prompts_per_step=15))
    assert [len(rows) for _, _, rows in world.rollout.asked] == [15, 5]
    await world.manager.stop()


@pytest.mark.asyncio
async def test_a_lost_attempt_draws_the_same_prompts_again(tmp_path):
    order = [position_at(20, 4, 0, place) for place in range(20)]
    world = world_of(tmp_path, silent={order[1]})
    real, calls = world.rollout.rollout, []

    async def second_round_fails(request):
        calls.append(request)
        if len(calls) == 2:
            raise RuntimeError("the sampler died")
        return await real(request)

    world.rollout.rollout = second_round_fails
    await played(world, submission(world, rounds=3, steps=1))
    assert [(request.attempt, [row.row for row in request.rows]) for request in calls] == [
        (1, order[:4]),
        (1, order[4:5]),
        (2, order[:4]),
        (2, order[4:5]),
    ]
    assert len(world.events("job_a", "rollout_lost")) == 1
    await world.manager.stop()


@pytest.mark.asyncio
@pytest.mark.parametrize("point", ["rollout:staged", "rollout:renamed", "commit:head:renamed", "commit:done"])
async def test_a_manager_that_dies_anywhere_goes_on_with_the_same_prompts(tmp_path, point):
    silent = {position_at(20, 4, 0, place) for place in (1, 2, 4, 8, 9)}
    whole = world_of(tmp_path / "whole", silent)
    await played(whole, submission(whole, rounds=3))
    await whole.manager.stop()
    broken = world_of(tmp_path / "broken", silent)
    raw = submission(broken, rounds=3)
    assert await die(broken, point, nth=1 if point.startswith("rollout") else 2, raw=raw)
    await broken.open()
    await broken.manager.submit("job_a", raw)
    await broken.ended("job_a")
    assert versions(broken) == versions(whole)
    assert audit(broken.root / "engine") == []
    await broken.manager.stop()


# Steps that teach nothing


class NoSignal(FixedRollouts):
    """A trainer that finds no signal in any batch."""

    async def step(self, request):
        result = await super().step(request)
        result.metrics["skipped"] = "no_signal"
        return result


@pytest.mark.asyncio
async def test_steps_without_signal_in_a_row_pause_the_job_with_advice(tmp_path):
    world = World(tmp_path)
    world.train = NoSignal(world.script)
    await world.open()
    await world.manager.submit("job_a", submission(world, rounds=0, steps=6, max_silent_steps=3))
    paused = (await world.seen("job_a", "paused"))["data"]
    (request,) = world.events("job_a", "pause_requested")
    assert (paused["version"], request.data["code"]) == (3, "no_signal")
    assert "3 steps in a row carried no signal" in paused["reason"] and "prompts that are neither" in paused["reason"]
    await world.manager.resume("job_a")
    await world.ended("job_a")  # it gets as many again, and is not held behind its last
    assert len(world.events("job_a", "pause_requested")) == 1
    await world.manager.stop()


@pytest.mark.asyncio
async def test_a_job_may_be_told_never_to_pause(tmp_path):
    world = World(tmp_path)
    world.train = NoSignal(world.script)
    await world.open()
    await world.manager.submit("job_a", submission(world, rounds=0, steps=6, max_silent_steps=0))
    assert (await world.ended("job_a"))["job_a"]["version"] == 6
    assert world.events("job_a", "pause_requested") == []
    await world.manager.stop()


class Solved(FakeRolloutPort):
    """``right`` of the four groups of each batch have nothing but right completions; ``ungraded``: none could be graded."""

    def __init__(self, script, right: int, *, ungraded: bool = False) -> None:
        super().__init__(script)
        self.right, self.ungraded = right, ungraded

    async def rollout(self, request):
        result = await super().rollout(request)
        summary = {**result.summary, "groups": 4, "groups_all_right": self.right}
        return RolloutResult(batch=result.batch, summary=summary | ({"invalid": summary["completions"]} if self.ungraded else {}))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("right", "ungraded", "advice"), [(4, False, "has learnt"), (3, False, "Easier or harder"), (0, True, "could be graded")]
)
async def test_a_step_without_signal_says_why(tmp_path, right, ungraded, advice):
    world = World(tmp_path)
    world.rollout, world.train = Solved(world.script, right, ungraded=ungraded), NoSignal(world.script)
    await world.open()
    await world.manager.submit("job_a", submission(world, rounds=0, steps=1))
    await world.ended("job_a")
    (warning,) = [event for event in world.events("job_a", "warning") if event.data["code"] == "no_signal"]
    assert advice in warning.data["advice"]
    await world.manager.stop()
