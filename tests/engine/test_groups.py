"""Groups of completions as people look for them: whole, with advantages as the trainer gives them, and dropped ones with their reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine import mismatch
from engine.audit import audit
from engine.errors import NotFound
from engine.groups import Tokens, Wanted, chosen
from engine.sim.fakes import FakeTrainPort
from engine.spec import parse_job
from engine.trajectory import RolloutBatch, ToolCall, Trajectory, Turn, decode
from tests.engine.test_resampling import played, submission, world_of

SPEC = {
    "base_model": "tiny",
    "dataset": {"version": "d", "train": {"sha256": "0" * 64, "bytes": 1}, "train_rows": 8},
    "grader": {"type": "string_check"},
    "rollout": {"prompts_per_step": 2, "group_size": 2, "max_prompt_tokens": 8, "max_new_tokens": 8},
}


def trajectory(row: int, sample: int, reward: float | None, **more) -> Trajectory:
    ids = [5] * more.pop("length", 3)
    fixed = {"job": "a", "policy_version": 0, "attempt": 1, "load_id": 1, "seed": 0, "prompt_ids": [1]}
    own = {"text": f"answer {sample}", "finish_reason": "stop", "completion_ids": ids, "logprobs": [-0.5] * len(ids)}
    return Trajectory(**fixed, row=row, sample=sample, reward=reward, **{**own, **more})


def batch(*trajectories: Trajectory, dropped: tuple[Trajectory, ...] = ()) -> RolloutBatch:
    return RolloutBatch(job="a", policy_version=0, attempt=1, group_size=2, trajectories=list(trajectories), dropped=list(dropped))


BATCH = batch(
    trajectory(3, 0, 1.0, length=2),
    trajectory(3, 1, 0.0, length=6, finish_reason="length"),
    trajectory(4, 0, 1.0, text="Oslo is the capital"),
    trajectory(4, 1, 1.0),
    dropped=(trajectory(7, 0, 0.0), trajectory(7, 1, 0.0)),
)
PROMPTS = {3: "1+1=", 4: "Norway?", 7: "2+2="}


def rows(*, spec=None, **wanted) -> list[int]:
    found = chosen(BATCH, parse_job({**SPEC, **(spec or {})}), PROMPTS, Wanted(**wanted))
    return [group["row"] for group in found]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, [3, 4, 7]),
        ({"row": 4}, [4]),
        ({"reward_max": 0.5}, [3, 7]),
        ({"reward_min": 1.0}, [3, 4]),
        ({"length_min": 5}, [3]),
        ({"length_max": 2}, [3]),
        ({"finish": "length"}, [3]),
        ({"text": "oslo"}, [4]),
        ({"text": "NORWAY"}, [4]),
        ({"text": "nowhere"}, []),
        ({"kept": "dropped"}, [7]),
        ({"kept": "kept"}, [3, 4]),
        ({"reward_max": 0.5, "finish": "stop"}, [7]),
    ],
)
def test_groups_are_found_by_what_one_of_their_completions_is(wanted, found):
    assert rows(**wanted) == found


def test_what_a_tool_said_is_searched_too():
    call = ToolCall(tool="search", argument="fjord", answer="Sognefjord", seconds=0.1)
    turn = Turn(sampled=2, added=1, text="<tool>", observation="The Sognefjord is long", call=call)
    found = chosen(batch(trajectory(1, 0, 0.0, turns=[turn]), trajectory(1, 1, 1.0)), parse_job(SPEC), {}, Wanted(text="sognefjord is"))
    assert [completion["matches"] for completion in found[0]["completions"]] == [True, False]


def test_a_group_comes_whole_with_its_advantages():
    [group] = chosen(
        BATCH, parse_job({**SPEC, "train": {"advantage": "unscaled"}}), PROMPTS, Wanted(row=3, reward_max=0.0), tokens=Tokens()
    )
    assert [(c["advantage"], c["matches"]) for c in group["completions"]] == [(0.5, False), (-0.5, True)]
    assert (group["prompt"], group["reward_mean"], group["silent"]) == ("1+1=", 0.5, "")
    assert group["completions"][0]["logprobs"] == [-0.5, -0.5]


def test_tokens_come_with_what_the_trainer_made_of_them_where_that_is_known():
    counts = [t.sampled_tokens for t in BATCH.trajectories]
    told = mismatch.encode([0.25 * number for number in range(sum(counts))])
    first, *_, dropped = chosen(BATCH, parse_job(SPEC), PROMPTS, Wanted(), tokens=Tokens.of(BATCH, told))
    assert [completion["mismatch"] for completion in first["completions"]] == [[0.0, 0.25], [0.5, 0.75, 1.0, 1.25, 1.5, 1.75]]
    assert {completion["mismatch"] for completion in dropped["completions"]} == {None}, "it was never trained on"


@pytest.mark.parametrize("data", [None, b"", b"\0" * 6])
def test_a_batch_without_such_a_file_or_with_another_s_shows_none(data):
    groups = chosen(BATCH, parse_job(SPEC), PROMPTS, Wanted(), tokens=Tokens.of(BATCH, data))
    assert {completion["mismatch"] for group in groups for completion in group["completions"]} == {None}


def test_a_group_without_signal_says_why_and_a_dropped_one_that_others_took_its_place():
    _, alike, dropped = chosen(BATCH, parse_job(SPEC), PROMPTS, Wanted())
    assert alike["silent"] == "every completion got 1, so none is better than another"
    assert dropped["silent"].endswith("other prompts took its place")
    ungraded = chosen(batch(trajectory(1, 0, None), trajectory(1, 1, 1.0)), parse_job(SPEC), {}, Wanted())
    assert "1 of 2 completions could be graded" in ungraded[0]["silent"]


async def test_a_step_that_resampled_shows_what_it_dropped(tmp_path):
    world = world_of(tmp_path, silent={0, 1, 2, 3, 4, 5})
    await played(world, submission(world, rounds=2, steps=1))
    every = await world.manager.groups("job_a", 0, Wanted(), every=False, offset=0, limit=100, tokens=False)
    dropped = await world.manager.groups("job_a", 0, Wanted(kept="dropped"), every=False, offset=0, limit=100, tokens=False)
    assert len([group for group in every["groups"] if not group["dropped"]]) == 4
    assert dropped["total"] == every["total"] - 4 > 0


class Telling(FakeTrainPort):
    """It says of every token that it differs by as much as the version's number, in eighths."""

    async def step(self, request):
        counts = [t.sampled_tokens for t in decode(request.batch).trajectories]
        told = mismatch.encode([request.version / 8] * sum(counts))
        return replace(await super().step(request), token_mismatch=told)


async def test_what_the_trainer_said_of_each_token_is_kept_beside_its_batch_and_goes_with_it(tmp_path):
    world = world_of(tmp_path, silent=set())
    world.train = Telling(world.script)
    await played(world, submission(world, rounds=0, steps=3))

    async def shown(version: int) -> set[float]:
        found = await world.manager.groups("job_a", version, Wanted(), every=False, offset=0, limit=100, tokens=True)
        return {value for group in found["groups"] for one in group["completions"] for value in one["mismatch"]}

    assert [await shown(version) for version in (1, 2)] == [{0.125}, {0.25}]
    assert audit(world.root / "engine") == []
    await world.manager.delete_completions("job_a")
    assert not list(world.root.rglob("*.mismatch"))


async def test_a_search_goes_from_the_newest_step_down_and_says_where_to_go_on(tmp_path):
    world = world_of(tmp_path, silent=set())
    await played(world, submission(world, rounds=0, steps=3))
    first = await world.manager.groups("job_a", None, Wanted(), every=True, offset=0, limit=5, tokens=False)
    assert [group["version"] for group in first["groups"]] == [2] * 4 + [1] * 4
    rest = await world.manager.groups("job_a", first["next"], Wanted(), every=True, offset=0, limit=5, tokens=False)
    assert ([group["version"] for group in rest["groups"]], rest["next"]) == ([0] * 4, None)


@pytest.mark.parametrize("rounds", [0, 1])
async def test_the_versions_of_a_row_are_those_whose_batches_hold_it(tmp_path, rounds):
    world = world_of(tmp_path, silent=set())
    await played(world, submission(world, rounds=rounds, steps=6))
    held = {}
    for version in range(6):
        page = await world.manager.rollouts("job_a", version, offset=0, limit=100)
        for one in page["trajectories"]:
            held.setdefault(one["row"], set()).add(version)
    row = max(held, key=lambda row: len(held[row]))
    assert set((await world.manager.row_versions("job_a", row))["versions"]) == held[row]


async def test_a_step_that_is_not_there_is_not_found(tmp_path):
    world = world_of(tmp_path, silent=set())
    await played(world, submission(world, rounds=0, steps=1))
    with pytest.raises(NotFound):
        await world.manager.groups("job_a", 9, Wanted(), every=False, offset=0, limit=5, tokens=False)
