"""A prompt that does not fit its job is found before the job is accepted."""

from __future__ import annotations

import asyncio

import pytest

from engine.blobs import BlobStore
from engine.data import Datasets
from engine.environment_spec import SingleTurn, Tools
from engine.errors import Invalid, NotReady
from engine.ports import PortError
from engine.prompts import Longest, Prompts
from tests.engine.world import World, rows

pytestmark = pytest.mark.asyncio


def narrow(world: World, tokens: int, **changes) -> dict:
    """A submission whose prompts may have ``tokens`` characters (the fake counts those)."""
    body = world.submission(**changes)
    body["spec"]["rollout"]["max_prompt_tokens"] = tokens
    return body


async def test_a_prompt_that_is_too_long_is_refused_by_row_and_leaves_nothing(world):
    with pytest.raises(Invalid, match="row 10 of the training rows has a prompt of 5 tokens, more than 4") as refused:
        await world.manager.submit("job_a", narrow(world, 4))
    assert [field for field, _ in refused.value.problems] == ["rollout.max_prompt_tokens"]
    assert world.events("job_a") == []


async def test_held_out_prompts_are_measured_too(world):
    world.eval_rows = world.blobs.put(rows(100, 104))
    with pytest.raises(Invalid, match="row 100 of the held-out rows"):
        await world.manager.submit("job_a", narrow(world, 5, with_eval=True))


async def test_a_prompt_that_just_fits_is_let_in(world):
    assert (await world.manager.submit("job_a", narrow(world, 5)))["created"]


async def test_an_estimate_tells_of_long_prompts(world):
    answer = await world.manager.estimate(narrow(world, 4)["spec"])
    assert [problem["field"] for problem in answer["problems"]] == ["rollout.max_prompt_tokens"]


async def test_while_nobody_can_count_the_answer_is_not_now(world):
    world.script.fail("prompt_tokens", "", 0, error=PortError("no sampler is up"))
    with pytest.raises(NotReady, match="no sampler is up"):
        await world.manager.submit("job_a", world.submission())
    assert (await world.manager.submit("job_a", world.submission()))["created"]


class Counting:
    """A sampler that counts the chats it was asked about, a token per character; ``stuck`` never answers."""

    def __init__(self, *, stuck: bool = False):
        self.calls: list[int] = []
        self._stuck = stuck

    async def prompt_tokens(self, chats):
        self.calls.append(len(chats))
        if self._stuck:
            await asyncio.Event().wait()
        return [len(chat[0]["content"]) for chat in chats]


async def test_a_file_is_measured_once_and_in_pieces(tmp_path):
    blobs, sampler = BlobStore(tmp_path), Counting()
    ref = blobs.put(rows(0, 1200))
    prompts = Prompts(Datasets(blobs), sampler, seconds=30)
    assert await prompts.longest(ref, SingleTurn()) == await prompts.longest(ref, SingleTurn()) == Longest(row=1000, tokens=7)
    assert sampler.calls == [500, 500, 200]


async def test_a_sampler_that_does_not_answer_holds_nobody_for_ever(tmp_path):
    blobs = BlobStore(tmp_path)
    prompts = Prompts(Datasets(blobs), Counting(stuck=True), seconds=0)
    with pytest.raises(TimeoutError):
        await prompts.longest(blobs.put(rows(0, 3)), SingleTurn())


async def test_what_the_environment_tells_the_model_counts_as_prompt(tmp_path):
    class Reading(Counting):
        async def prompt_tokens(self, chats):
            return [sum(len(message["content"]) for message in chat) for chat in chats]

    blobs = BlobStore(tmp_path)
    ref, prompts = blobs.put(rows(0, 3)), Prompts(Datasets(blobs), Reading(), seconds=30)
    told = await prompts.longest(ref, Tools(type="tools", instructions="use them"))
    assert told.tokens == (await prompts.longest(ref, SingleTurn())).tokens + len("use them")


@pytest.mark.parametrize(("room", "refused"), [(19, []), (18, ["environment.max_observation_tokens"])])
async def test_the_room_for_what_an_environment_says_is_measured_at_the_door(world, room, refused):
    spec = world.submission()["spec"]
    spec["environment"] = {"type": "stand_in", "latency": {"median_seconds": 1}, "max_observation_tokens": room}
    answer = await world.manager.estimate(spec)
    assert [problem["field"] for problem in answer["problems"]] == refused
