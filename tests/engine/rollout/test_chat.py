"""Chats of a replica, over a sampler that streams one character per piece and waits where a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from engine.ports import AdapterRef, PortError, Snapshot, TooMany
from engine.rollout.chat import OPEN_OF_TENANT, ChatDesk
from engine.rollout.sampling import Piece, SampleParams
from tests.engine.rollout.fakes import FILES, FakeTokens

pytestmark = pytest.mark.asyncio


class StreamingSampler:
    """``hold``: no piece leaves before it is set. ``running``: how many streams are open; ``most``: how many ever were at once."""

    def __init__(self, text: str = "42"):
        self.text = text
        self.hold: asyncio.Event | None = None
        self.loads: list[AdapterRef] = []
        self.unloads: list[str] = []
        self.asked: list[tuple[AdapterRef, SampleParams]] = []
        self.running = self.most = 0
        self.adapters_running: list[str] = []
        self.refuses: PortError | None = None

    async def load(self, ref: AdapterRef, files: Snapshot) -> AdapterRef:
        await asyncio.sleep(0)
        self.loads.append(ref)
        return ref

    async def unload(self, job: str, *, keep_version: int | None = None) -> None:
        self.unloads.append(job)

    async def stream(
        self, adapter: AdapterRef, prompt_ids: list[int], params: SampleParams, *, top_logprobs: int | None
    ) -> AsyncGenerator[Piece, None]:
        self.asked.append((adapter, params))
        self.running += 1
        self.most = max(self.most, self.running)
        self.adapters_running.append(adapter.name)
        try:
            if self.refuses:
                raise self.refuses
            for place, letter in enumerate(self.text):
                await (self.hold.wait() if self.hold is not None else asyncio.sleep(0))
                told = {"token": letter, "logprob": -0.5, "top": []}
                last = place == len(self.text) - 1
                yield Piece(
                    text=letter,
                    tokens=1,
                    cached_tokens=3,
                    finish_reason="stop" if last else "",
                    logprobs=() if top_logprobs is None else (told,),
                )
        finally:
            self.running -= 1
            self.adapters_running.remove(adapter.name)


def desk_over(sampler: StreamingSampler, **changes: Any) -> ChatDesk:
    return ChatDesk(sampler, FakeTokens(), **{"context_tokens": 64, "room_tokens": 1000, **changes})


def order(**changes: Any) -> dict[str, Any]:
    return {"tenant": "alice", "messages": [{"role": "user", "content": "6*7="}], **changes}


async def read_all(desk: ChatDesk, chat: str) -> list[dict[str, Any]]:
    lines, over = [], False
    async with asyncio.timeout(10):
        while not over:
            page = await desk.read(chat)
            lines, over = lines + page["lines"], page["over"]
    await desk.close(chat)
    return lines


async def until(true: Any) -> None:
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0)


async def begun(desk: ChatDesk, chat: str, **changes: Any) -> bool:
    version = 3 if "job" in changes else None
    return await desk.open(chat, order(**changes), version, FILES if "job" in changes else None)


async def test_an_answer_is_begun_told_ended_and_counted():
    desk = desk_over(StreamingSampler("42"))
    await begun(desk, "c1")

    lines = await read_all(desk, "c1")

    assert lines[0] == {"type": "begin", "prompt_tokens": 4, "cached_tokens": 3}
    assert "".join(line["text"] for line in lines if line["type"] == "delta") == "42"
    assert lines[-2:] == [
        {"type": "end", "index": 0, "finish_reason": "stop"},
        {"type": "usage", "prompt_tokens": 4, "cached_tokens": 3, "completion_tokens": 2},
    ]


async def test_text_that_nobody_has_read_yet_travels_together_with_its_log_probabilities():
    desk = desk_over(sampler := StreamingSampler("abc"))
    await begun(desk, "c1", top_logprobs=0)
    await until(lambda: sampler.asked and not sampler.running)

    (delta,) = [line for line in await read_all(desk, "c1") if line["type"] == "delta"]

    assert (delta["text"], delta["tokens"], [told["token"] for told in delta["logprobs"]]) == ("abc", 3, ["a", "b", "c"])


async def test_each_of_several_completions_has_a_seed_of_its_own():
    desk = desk_over(sampler := StreamingSampler())
    await begun(desk, "c1", n=3, seed=7, temperature=0.5, stop=["\n"], top_p=0.9, max_new_tokens=5)

    ends = [line["index"] for line in await read_all(desk, "c1") if line["type"] == "end"]

    assert sorted(ends) == [0, 1, 2]
    params = [asked for _, asked in sampler.asked]
    assert [p.seed for p in params] == [7, 8, 9]
    assert {(p.temperature, p.top_p, p.stop, p.max_new_tokens) for p in params} == {(0.5, 0.9, ("\n",), 5)}


async def test_an_answer_never_grows_beyond_the_context():
    desk = desk_over(sampler := StreamingSampler(), context_tokens=10)
    await begun(desk, "c1", max_new_tokens=50)
    await read_all(desk, "c1")
    assert sampler.asked[0][1].max_new_tokens == 6


async def test_a_prompt_of_no_tokens_is_the_users_to_fill():
    desk = desk_over(sampler := StreamingSampler())
    with pytest.raises(PortError, match="no tokens") as refused:
        await begun(desk, "c1", messages=[{"role": "user", "content": ""}])
    assert refused.value.attribution == "user"
    assert (desk.open_completions(), sampler.asked) == (0, [])


async def test_a_prompt_as_long_as_the_context_is_the_users_to_shorten():
    with pytest.raises(PortError) as refused:
        await begun(desk_over(StreamingSampler(), context_tokens=4), "c1")
    assert refused.value.attribution == "user" and "4 tokens" in refused.value.reason


async def test_no_more_completions_sample_at_once_than_there_are_seats():
    desk = desk_over(sampler := StreamingSampler(), seats=2)
    for chat in ("c1", "c2"):
        await begun(desk, chat, n=4)
    for chat in ("c1", "c2"):
        assert [line["type"] for line in await read_all(desk, chat)].count("end") == 4
    assert sampler.most == 2


async def test_no_more_tokens_are_taken_than_the_room_has():
    desk = desk_over(sampler := StreamingSampler(), room_tokens=64, context_tokens=64)
    await begun(desk, "c1", n=6, max_new_tokens=26)  # 4 of the prompt with each: 30
    await read_all(desk, "c1")
    assert sampler.most == 2


async def test_an_adapter_is_loaded_once_under_a_name_of_its_own_and_asked_for_without_files_then():
    desk = desk_over(sampler := StreamingSampler())
    assert not await desk.open("c1", order(job="job_a"), 3, None)
    await desk.open("c1", order(job="job_a"), 3, FILES)
    await read_all(desk, "c1")

    assert await desk.open("c2", order(job="job_a"), 3, None)
    await read_all(desk, "c2")

    assert [(ref.job, ref.version) for ref in sampler.loads] == [("chat/job_a", 3)]


async def test_only_one_adapter_is_chats_at_a_time_and_others_wait_for_their_turn():
    desk = desk_over(sampler := StreamingSampler())
    sampler.hold = asyncio.Event()
    await begun(desk, "c1", job="job_a")
    await begun(desk, "c2", job="job_b")
    await begun(desk, "c3", job="job_a")  # behind job_b, or job_b might wait for ever
    await until(lambda: sampler.running)
    assert sampler.adapters_running == ["chat/job_a@3"]

    sampler.hold.set()
    for chat in ("c1", "c2", "c3"):
        assert (await read_all(desk, chat))[-1]["type"] == "usage"

    assert [ref.job for ref in sampler.loads] == ["chat/job_a", "chat/job_b", "chat/job_a"]
    assert sampler.unloads == ["chat/job_a", "chat/job_b"]


async def test_the_base_model_waits_for_no_adapter():
    desk = desk_over(sampler := StreamingSampler())
    sampler.hold = asyncio.Event()
    await begun(desk, "c1", job="job_a")
    await begun(desk, "c2", job="job_b")
    await begun(desk, "c3")
    await until(lambda: sampler.running == 2)
    assert "chat@0" in sampler.adapters_running
    await desk.close_all()


async def test_closing_a_chat_ends_its_sampling_and_frees_its_place():
    desk = desk_over(sampler := StreamingSampler(), seats=1)
    sampler.hold = asyncio.Event()
    await begun(desk, "c1")
    await begun(desk, "c2")
    await until(lambda: sampler.running)

    await desk.close("c1")
    sampler.hold.set()

    assert (await read_all(desk, "c2"))[-1]["completion_tokens"] == 2
    assert desk.open_completions() == 0


async def test_a_client_that_leaves_during_a_load_leaves_no_adapter_behind_that_nobody_knows():
    desk = desk_over(sampler := StreamingSampler())
    await begun(desk, "c1", job="job_a")
    await asyncio.sleep(0)
    await desk.close("c1")
    await begun(desk, "c2", job="job_b")
    await read_all(desk, "c2")
    assert len(sampler.loads) - len(sampler.unloads) == 1


async def test_a_chat_that_finds_no_place_in_time_is_told_that_the_engine_is_busy():
    desk = desk_over(sampler := StreamingSampler(), seats=1, wait_seconds=0.01)
    sampler.hold = asyncio.Event()
    await begun(desk, "c1")
    await until(lambda: sampler.running)
    await begun(desk, "c2")
    assert [line["code"] for line in await read_all(desk, "c2")] == ["busy"]
    await desk.close_all()


async def test_a_chat_that_takes_longer_than_its_deadline_ends_with_that_error():
    desk = desk_over(sampler := StreamingSampler())
    sampler.hold = asyncio.Event()
    await begun(desk, "c1", deadline_seconds=0.01)
    assert [line["code"] for line in await read_all(desk, "c1")] == ["deadline"]
    assert sampler.running == 0


async def test_a_chat_whose_reader_does_not_come_back_ends_by_itself():
    desk = desk_over(sampler := StreamingSampler(), unread_seconds=0)
    sampler.hold = asyncio.Event()
    await begun(desk, "c1")
    await until(lambda: sampler.asked and not sampler.running)
    assert desk.open_completions() == 0


async def test_one_tenant_cannot_take_all_of_chat():
    desk = desk_over(sampler := StreamingSampler())
    sampler.hold = asyncio.Event()
    for number in range(OPEN_OF_TENANT // 8):
        await begun(desk, f"c{number}", n=8)
    with pytest.raises(TooMany):
        await begun(desk, "more")
    assert await begun(desk, "bobs", tenant="bob")
    await desk.close_all()


@pytest.mark.parametrize(("attribution", "code"), [("user", "refused"), ("platform", "failed")])
async def test_what_the_sampler_refuses_is_the_last_line(attribution: str, code: str):
    desk = desk_over(sampler := StreamingSampler())
    sampler.refuses = PortError("no", attribution=attribution)
    await begun(desk, "c1")
    assert (await read_all(desk, "c1"))[-1] == {"type": "error", "code": code, "message": "no"}


async def test_a_deleted_jobs_adapter_is_loaded_anew_if_anybody_still_may_have_it():
    desk = desk_over(sampler := StreamingSampler())
    await begun(desk, "c1", job="job_a")
    await read_all(desk, "c1")
    await desk.drop("job_a")
    assert sampler.unloads == ["chat/job_a"]
    assert not await desk.open("c2", order(job="job_a"), 3, None)
