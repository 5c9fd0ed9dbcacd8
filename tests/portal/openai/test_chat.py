"""Chat completions: what a client gets, what the engine is asked, and what it costs, however the chat ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from portal.billing import ledger
from portal.billing.models import Account, Entry, Hold
from portal.jobs.models import Job
from portal.openai.models import Chat
from tests.portal.billing.books import account
from tests.portal.fake_engine import FakeEngine
from tests.portal.openai.callers import HELLO, Caller, bill, events, in_thread, post
from tests.portal.world import World

pytestmark = pytest.mark.django_db(transaction=True)
HARMLESS = [{"tools": []}, {"presence_penalty": 0}, {"response_format": {"type": "text"}}, {"user": "x"}, {"n": None}]


async def test_an_answer_has_its_text_its_usage_and_its_model(client: Caller, engine: FakeEngine) -> None:
    answer = (await post(client, n=2)).json()
    assert [choice["message"]["content"] for choice in answer["choices"]] == ["42", "42"]
    assert (answer["object"], answer["model"], answer["choices"][0]["finish_reason"]) == ("chat.completion", "tiny-math", "stop")
    assert answer["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 4,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


async def test_a_stream_greets_each_choice_tells_its_text_and_ends(client: Caller) -> None:
    answer = await post(client, n=2, stream=True, stream_options={"include_usage": True})
    assert answer["Content-Type"] == "text/event-stream"
    chunks = await events(answer)
    for index in (0, 1):
        own = [choice for chunk in chunks for choice in chunk["choices"] if choice["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(choice["delta"].get("content", "") for choice in own) == "42"
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["stop"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["total_tokens"] == 8
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_what_is_asked_reaches_the_engine_as_its_order(client: Caller, engine: FakeEngine, world: World) -> None:
    asked = {"temperature": 0.5, "top_p": 0.9, "seed": -1, "stop": "\n", "max_tokens": 7, "logprobs": True, "top_logprobs": 2}
    system = {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]}
    await post(client, messages=[system, *HELLO], **asked)
    (order,) = engine.chats
    assert order["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6*7="}]
    assert (order["tenant"], order["job"], order["version"]) == (world.sums.public_id, None, None)
    assert (order["temperature"], order["top_p"], order["stop"], order["max_new_tokens"], order["top_logprobs"]) == (0.5, 0.9, ["\n"], 7, 2)
    assert 0 <= order["seed"] < 2**62


async def test_log_probabilities_come_token_by_token(client: Caller) -> None:
    whole = (await post(client, logprobs=True, top_logprobs=1)).json()["choices"][0]["logprobs"]["content"]
    assert [token["token"] for token in whole] == ["4", "2"]
    assert whole[0] == {"token": "4", "logprob": -0.5, "bytes": [52], "top_logprobs": [{"token": "4", "logprob": -0.5, "bytes": [52]}]}
    chunks = await events(await post(client, logprobs=True, stream=True))
    assert [t["token"] for c in chunks if (told := c["choices"][0]["logprobs"]) for t in told["content"]] == ["4", "2"]
    assert (await post(client)).json()["choices"][0]["logprobs"] is None


@pytest.mark.parametrize("name", ["{id}", "{name}", "{id}@latest"])
async def test_a_bare_name_is_the_latest_step_and_the_answer_says_which(client: Caller, engine: FakeEngine, job: Job, name: str) -> None:
    asked = name.format(id=job.public_id, name=job.name)
    answer = (await post(client, model=asked)).json()
    assert answer["model"] == f"{asked.removesuffix('@latest')}@3"
    assert (engine.chats[0]["job"], engine.chats[0]["version"]) == (job.public_id, 3)


async def test_a_step_is_served_as_asked(client: Caller, engine: FakeEngine, job: Job) -> None:
    assert (await post(client, model=f"{job.public_id}@1")).json()["model"] == f"{job.public_id}@1"
    assert engine.chats[0]["version"] == 1


@pytest.mark.parametrize("name", ["{id}@4", "{id}@x", "{id}@", "gpt-5", "job_aaaaaaaaaaaaaaaaaaaa@1", "{id}@-1", "{id}@1e0"])
async def test_what_does_not_exist_is_404_and_asks_nothing_of_the_engine(client: Caller, engine: FakeEngine, job: Job, name: str) -> None:
    answer = await post(client, model=name.format(id=job.public_id))
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    assert engine.chats == []


async def test_anothers_model_does_not_exist(world: World, engine: FakeEngine, job: Job) -> None:
    api = await in_thread(world.api, world.charlie)
    charlie = Caller(api.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer "))
    for model in (job.public_id, f"{job.public_id}@1", job.name):
        assert (await post(charlie, model=model)).status_code == 404
    assert engine.chats == []


async def test_a_name_of_several_jobs_is_not_guessed_at(client: Caller, world: World, job: Job) -> None:
    await in_thread(world.job)
    answer = await post(client, model=job.name)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"speed": 1}, "speed"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"presence_penalty": 0.5}, "presence_penalty"),
        ({"n": 9}, "n"),
        ({"n": True}, "n"),
        ({"temperature": 2.1}, "temperature"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": ""}]}, "messages"),
        ({"messages": [{"role": "user", "content": []}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": ""}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": ""}, {"role": "assistant", "content": ""}]}, "messages"),
        ({"messages": [{"role": "user", "content": ""}], "stream": True}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"messages": [{"role": "assistant", "content": "", "tool_calls": []}]}, "messages.0.tool_calls"),
        ({"max_tokens": 1, "max_completion_tokens": 1}, "max_tokens"),
    ],
)
async def test_what_is_not_offered_is_refused_by_its_name(client: Caller, engine: FakeEngine, body: dict[str, Any], param: str) -> None:
    answer = await post(client, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["type"]) == (400, param, "invalid_request_error")
    assert engine.chats == []


@pytest.mark.parametrize("body", HARMLESS)
async def test_what_asks_for_nothing_is_no_reason_to_refuse(client: Caller, body: dict[str, Any]) -> None:
    assert (await post(client, **body)).status_code == 200


# What it costs


async def test_an_answer_is_billed_once_by_its_usage(client: Caller, job: Job) -> None:
    await post(client, model=job.public_id, n=2)
    chat = await Chat.objects.select_related("tenant", "job").aget()
    assert chat.state == "done"
    found = await in_thread(bill, chat)
    assert {kind: tokens for kind, (tokens, _) in found.items()} == {"prefill": 1, "cached_prefill": 3, "sampled": 4}
    entry = await Entry.objects.filter(source_type="chat").afirst()
    assert (entry.source, entry.model) == (f"{job.public_id}@3", "tiny-math")


async def test_settling_twice_is_settling_once(client: Caller) -> None:
    from portal.openai.chats import Spent, settled_now

    await post(client)
    chat = await Chat.objects.select_related("tenant", "job").aget()
    before = await Entry.objects.acount()
    again = Spent()
    again.take({"type": "usage", "prompt_tokens": 100, "cached_tokens": 0, "completion_tokens": 100})
    await in_thread(settled_now, chat, again)
    assert await Entry.objects.acount() == before
    audit = await in_thread(ledger.audit, chat.tenant)
    assert audit.sound


async def test_what_the_platform_fails_is_written_down_and_costs_nothing(client: Caller, engine: FakeEngine) -> None:
    engine.chat_breaks = True
    assert (await post(client)).status_code == 503
    chunks = await events(await post(client, stream=True))
    assert chunks[-1]["error"]["type"] == "server_error"
    async for chat in Chat.objects.select_related("tenant", "job"):
        found = await in_thread(bill, chat)
        assert (chat.state, found["sampled"]) == ("failed", (2, 0))


@pytest.mark.parametrize(("refusal", "status"), [((422, "messages: too long"), 400), ((409, "too many"), 429), ((503, "busy"), 503)])
async def test_a_refusal_of_the_engine_is_a_status_before_the_first_byte(
    client: Caller, engine: FakeEngine, refusal: tuple[int, str], status: int
) -> None:
    engine.chat_refusal = refusal
    answer = await post(client, stream=True)
    assert answer.status_code == status
    assert (await Chat.objects.aget()).state == "failed"
    assert not await Entry.objects.filter(source_type="chat").aexists()


async def test_who_has_no_credit_is_told_so_before_anything_is_sampled(client: Caller, engine: FakeEngine, world: World) -> None:
    await in_thread(ledger.account_of, world.sums, world.sums.created_at)
    await Account.objects.filter(tenant=world.sums).aupdate(balance_micros=0)
    answer = await post(client)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "insufficient_quota")
    assert engine.chats == []


async def test_what_an_answer_may_cost_is_held_until_it_ends(client: Caller, engine: FakeEngine) -> None:
    engine.chat_hold = asyncio.Event()
    answer = await post(client, stream=True, max_tokens=100, n=2)
    held = await Hold.objects.aget()
    assert (held.source, held.closed_at) == ((await Chat.objects.aget()).public_id, None)
    assert held.micros == 200 * 400_000 // 1_000_000 + -(-20 * 100_000 // 1_000_000)  # at most 200 to sample, and 4 + 16 characters to read
    engine.chat_hold.set()
    await events(answer)
    assert (await Hold.objects.aget()).closed_at is not None
    assert (await Account.objects.aget()).held_micros == 0


async def test_nothing_stays_held_for_an_answer_that_fails_or_is_refused(client: Caller, engine: FakeEngine) -> None:
    engine.chat_breaks = True
    await post(client)
    engine.chat_refusal = (409, "too many")
    await post(client, stream=True)
    assert (await Hold.objects.filter(closed_at=None).acount(), await Hold.objects.acount()) == (0, 2)
    assert (await Account.objects.aget()).held_micros == 0


async def test_two_answers_at_once_cannot_spend_the_same_credit(client: Caller, engine: FakeEngine, world: World) -> None:
    await in_thread(account, world.sums, 100, world.sums.created_at)
    engine.chat_hold = asyncio.Event()
    first = await post(client, stream=True, max_tokens=200)
    second = await post(client, max_tokens=200)
    assert (first.status_code, second.status_code, len(engine.chats)) == (200, 429, 1)
    engine.chat_hold.set()
    await events(first)


async def test_a_viewer_may_not_spend(world: World, engine: FakeEngine) -> None:
    vera = await in_thread(world.api, world.vera)
    client = Caller(vera.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer "))
    answer = await post(client)
    assert (answer.status_code, answer.json()["error"]["type"]) == (403, "permission_error")
    assert engine.chats == []
