"""The tool loop: what ends it, what a call costs, and that nothing a tool does ends a batch."""

from __future__ import annotations

import asyncio

import pytest

from engine.environment_spec import Tools, told
from engine.rewards.sandbox import Failed, Limits, Ran
from engine.rollout.envs import Said, ToolLoop, open_tools
from engine.rollout.tools import KINDS, ToolFailed
from engine.rollout.tools_python import python_tool
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
    tools = loop(max_calls=1)
    await tools.reply(said("<tool>echo: ab</tool>"))
    reply = await tools.reply(said("<tool>echo: ab</tool>", turn=1))

    assert (reply.observation, reply.finish_reason) == (None, "calls")
    assert (reply.call.tool, reply.call.argument, reply.call.error) == ("echo", "ab", "too_many_calls")


async def test_a_call_in_the_last_turn_ends_the_episode_for_lack_of_turns_when_calls_are_left():
    reply = await loop(max_calls=5, max_turns=2).reply(said("<tool>echo: ab</tool>", turn=1))

    assert (reply.observation, reply.finish_reason, reply.call.error) == (None, "turns", "too_many_calls")


async def test_a_call_too_many_is_refused_once_and_then_ends_the_episode():
    tools = loop(max_calls=1, max_turns=9)
    replies = [await tools.reply(said("<tool>echo: ab</tool>", turn=turn)) for turn in range(3)]

    assert [reply.call.error for reply in replies] == [None, "too_many_calls", "too_many_calls"]
    assert replies[1].observation == "error: no calls are left; give your answer"
    assert [(reply.observation is None, reply.finish_reason) for reply in replies] == [(False, None), (False, None), (True, "calls")]


async def test_an_answer_after_a_refused_call_is_an_ordinary_end():
    tools = loop(max_calls=1, max_turns=9)
    for turn in range(2):
        await tools.reply(said("<tool>echo: ab</tool>", turn=turn))

    assert (await tools.reply(said("42", turn=2))).finish_reason is None


async def test_failed_calls_are_calls():
    tools = loop(max_calls=1, max_turns=4)
    replies = [await tools.reply(said("<tool>oracle: ab</tool>", turn=turn)) for turn in range(1)]
    replies.append(await tools.reply(said("<tool>echo: ab</tool>", turn=1)))

    assert [reply.call.error for reply in replies] == ["unknown_tool", "too_many_calls"]


async def test_the_time_of_all_calls_together_is_limited():
    tools = loop(clock_step=3.0, max_seconds=5.0)
    replies = [await tools.reply(said("<tool>echo: ab</tool>", turn=turn)) for turn in range(4)]

    assert [reply.call.error for reply in replies] == [None, None, "timeout", "timeout"]
    assert replies[2].observation == "error: no time is left for tools; give your answer"
    assert (replies[3].observation, replies[3].finish_reason) == (None, "seconds")


async def test_a_call_has_no_more_time_than_is_left_for_all():
    reply = await loop(call_seconds=100.0, max_seconds=0.01).reply(said("<tool>stuck: ab</tool>"))

    assert reply.call.error == "timeout"


async def test_tools_have_only_what_the_job_names():
    tools = await open_tools(Tools(type="tools", tools=["calculator"]), Searches.bundled())

    assert list(tools) == ["calculator"]
    assert await tools["calculator"]("6*7") == "42"


async def test_without_a_sandbox_no_program_runs():
    reply = await real_loop(None).reply(said("<tool>python: 6*7</tool>"))

    assert (reply.call.error, reply.observation) == ("unavailable", "error: this engine runs no code")


class FakePrograms:
    def __init__(self, ran: Ran):
        self.ran, self.asked = ran, []

    async def run_program(self, code: str, limits: Limits) -> Ran:
        self.asked.append((code, limits.call_seconds))
        return self.ran


def real_loop(programs: FakePrograms | None) -> ToolLoop:
    spec = Tools(type="tools", tools=["python"], call_seconds=2.0)
    return ToolLoop(spec, tools={"python": python_tool(programs, call_seconds=spec.call_seconds)}, clock=FakeClock(0.0))


@pytest.mark.parametrize(
    ("argument", "code"),
    [
        (" 6*7", "6*7"),
        ("\n  x = 6\n  x * 7\n", "x = 6\nx * 7"),
        ("\n```python\nx = 6\n```", "x = 6\n"),
    ],
)
async def test_a_program_comes_without_what_models_put_around_it(argument, code):
    programs = FakePrograms(Ran(text="42\n"))
    reply = await real_loop(programs).reply(said(f"<tool>python:{argument}</tool>"))

    assert (programs.asked, reply.observation) == ([(code, 1.8)], "42")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Failed(kind="timeout", message="no answer within 2 s"), "timeout"),
        (Failed(kind="hard_timeout", message="killed"), "timeout"),
        (Failed(kind="exception", message="ValueError: no"), "code_error"),
        (Failed(kind="memory", message="MemoryError"), "code_error"),
        (Failed(kind="exception", message="PermissionError: [Errno 13] Permission denied"), "denied"),
        (Failed(kind="crash", message="its process was killed for a forbidden system call"), "denied"),
        (Failed(kind="crash", message="its process was killed by SIGSEGV"), "code_error"),
        (Failed(kind="unavailable", message="no runner"), "unavailable"),
    ],
)
async def test_a_program_that_fails_has_a_kind(error, kind):
    reply = await real_loop(FakePrograms(Ran(text="", error=error))).reply(said("<tool>python: f()</tool>"))

    assert (reply.call.error, reply.observation) == (kind, f"error: {error.message}")
    assert kind in KINDS


async def test_the_model_reads_where_its_program_failed_and_what_it_printed_until_then():
    ran = Ran(text="so far\n", error=Failed(kind="exception", message="ValueError: no", line=2))
    reply = await real_loop(FakePrograms(ran)).reply(said("<tool>python: f()</tool>"))

    assert reply.observation == "error: ValueError: no (line 2)\nprinted before: so far"


@pytest.mark.parametrize(("ran", "answer"), [(Ran(text=" \n"), "nothing printed"), (Ran(text="xx", dropped_bytes=7), "xx… (7 more bytes)")])
async def test_silence_is_told_and_a_flood_is_cut(ran, answer):
    assert (await real_loop(FakePrograms(ran)).reply(said("<tool>python: f()</tool>"))).observation == answer


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
