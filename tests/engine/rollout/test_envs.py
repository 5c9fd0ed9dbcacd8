"""The tool loop: what ends it, what a call costs, and that nothing a tool does ends a batch."""

from __future__ import annotations

import asyncio

import pytest

from engine.environment_spec import Tools, told
from engine.rollout.envs import Said, ToolLoop, open_tools
from engine.rollout.tools import KINDS, ToolFailed
from engine.rollout.tools_search import Searches
from tests.engine.rollout.fakes import FakeClock


async def echo(argument: str) -> str:
    return argument.upper()


async def stuck(argument: str) -> str:
    await asyncio.Event().wait()
    return ""


async def broken(argument: str) -> str:
    raise RuntimeError("a bug")


async def refusing(argument: str) -> str:
    raise ToolFailed("unavailable", "closed today")


TOOLS = {"echo": echo, "stuck": stuck, "broken": broken, "refusing": refusing}


def loop(clock_step: float = 0.0, **changes) -> ToolLoop:
    return ToolLoop(Tools(**{"type": "tools", "call_seconds": 0.01} | changes), tools=TOOLS, clock=FakeClock(clock_step))


def said(text: str, turn: int = 0, finish_reason: str = "stop") -> Said:
    return Said(turn=turn, text=text, finish_reason=finish_reason, seed=0)


async def test_a_call_is_answered_and_recorded():
    reply = await loop(clock_step=0.25).reply(said("let me see <tool>echo: abc</tool>"))

    assert (reply.observation, reply.finish_reason) == ("ABC", None)
    assert (reply.call.tool, reply.call.argument, reply.call.answer, reply.call.error) == ("echo", "abc", "ABC", None)
    assert reply.call.seconds == 0.25


@pytest.mark.parametrize("finish_reason", ["stop", "length"])
async def test_a_turn_without_a_call_ends_the_episode(finish_reason):
    reply = await loop().reply(said("42", finish_reason=finish_reason))

    assert (reply.observation, reply.call) == (None, None)


async def test_a_call_that_was_cut_off_ends_the_episode_for_lack_of_tokens():
    reply = await loop().reply(said("<tool>echo: ab", finish_reason="length"))

    assert (reply.observation, reply.call, reply.finish_reason) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("<tool>echo: ab", "bad_call", "a call ends with </tool>"),
        ("<tool>ab</tool>", "bad_call", "write <tool>name: argument</tool>"),
        ("<tool>oracle: ab</tool>", "unknown_tool", "there is no tool oracle; there is echo, stuck, broken, refusing"),
        ("<tool>echo: </tool>", "bad_argument", "echo needs an argument"),
        ("<tool>stuck: ab</tool>", "timeout", "stuck gave no answer in time"),
        ("<tool>broken: ab</tool>", "broken", "broken failed"),
        ("<tool>refusing: ab</tool>", "unavailable", "closed today"),
    ],
)
async def test_a_failed_call_has_a_kind_and_tells_the_model_why(text, kind, message):
    reply = await loop().reply(said(text))

    assert (reply.call.error, reply.observation) == (kind, f"error: {message}")
    assert kind in KINDS


async def test_the_last_turn_may_not_call():
    reply = await loop(max_calls=1).reply(said("<tool>echo: ab</tool>", turn=1))

    assert (reply.observation, reply.finish_reason) == (None, "calls")
    assert (reply.call.tool, reply.call.argument, reply.call.error) == ("echo", "ab", "too_many_calls")


async def test_a_call_too_many_is_refused_while_turns_are_left():
    tools = loop(max_calls=1, max_turns=4)
    replies = [await tools.reply(said("<tool>echo: ab</tool>", turn=turn)) for turn in range(2)]

    assert [reply.call.error for reply in replies] == [None, "too_many_calls"]
    assert replies[1].observation == "error: no calls are left; give your answer"


async def test_failed_calls_are_calls():
    tools = loop(max_calls=1, max_turns=4)
    replies = [await tools.reply(said("<tool>oracle: ab</tool>", turn=turn)) for turn in range(1)]
    replies.append(await tools.reply(said("<tool>echo: ab</tool>", turn=1)))

    assert [reply.call.error for reply in replies] == ["unknown_tool", "too_many_calls"]


async def test_the_time_of_all_calls_together_is_limited():
    tools = loop(clock_step=3.0, max_seconds=5.0)
    replies = [await tools.reply(said("<tool>echo: ab</tool>", turn=turn)) for turn in range(3)]

    assert [reply.call.error for reply in replies] == [None, None, "timeout"]


async def test_tools_have_only_what_the_job_names():
    tools = await open_tools(Tools(type="tools", tools=["calculator"]), Searches.bundled())

    assert list(tools) == ["calculator"]
    assert await tools["calculator"]("6*7") == "42"


def test_the_system_message_names_the_job_s_tools_and_the_syntax():
    chat = [{"role": "user", "content": "6*7?"}]
    system, user = told(chat, Tools(type="tools", tools=["calculator"], max_calls=2))

    assert "<tool>name: argument</tool>" in system["content"]
    assert "calculator:" in system["content"] and "search:" not in system["content"] and "2 times" in system["content"]
    assert user == chat[0]


def test_own_instructions_follow_the_own_system_message_and_empty_ones_change_nothing():
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "6*7?"}]

    assert told(chat, Tools(type="tools", instructions="Use tools."))[0]["content"] == "Be brief.\n\nUse tools."
    assert told(chat, Tools(type="tools", instructions="")) == chat
