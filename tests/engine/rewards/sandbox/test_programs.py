"""Programs that a model runs in the middle of its episode: what they print, and that nothing of them stays."""

from __future__ import annotations

import asyncio

import pytest

from engine.rewards.sandbox import Limits, Ran, Sandbox, SandboxSettings

# In the engine's stage for its length.
pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

PATIENT, HASTY = Limits(call_seconds=20.0), Limits(call_seconds=0.5)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("print(1)\nprint('é')", "1\né\n"),
        ("x = 6\nx * 7", "42\n"),
        ("x = 6\nx", "6\n"),
        ("x = 6", ""),
        ("None", ""),
        ("import sys; print(sys.stdin.read() == '')", "True\n"),
        ("def f(n):\n    return n and n + f(n - 1)\nf(10)", "55\n"),
        ("import sympy\nx = sympy.Symbol('x')\nsympy.solve(x**2 - 4)", "[-2, 2]\n"),
    ],
)
async def test_a_program_prints_and_its_last_value_is_shown(sandbox: Sandbox, code, text):
    assert await sandbox.run_program(code, PATIENT) == Ran(text=text)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        ("print(1)\n1 / 0", "exception", "ZeroDivisionError: division by zero"),
        ("print(1", "exception", "SyntaxError"),
        ("while True: x = 1", "timeout", "no answer within 0.5 s"),
        ("open('/etc/passwd')", "exception", "PermissionError"),
        ("import socket; socket.socket()", "exception", "PermissionError"),
        ("x = 'x' * 2**31", "memory", "MemoryError"),
        ("import os; os._exit(3)", "crash", "exit status 3"),
    ],
)
async def test_a_program_that_fails_says_how(sandbox: Sandbox, code, kind, message):
    ran = await sandbox.run_program(code, HASTY if kind == "timeout" else PATIENT)

    assert ran.error.kind == kind and message in ran.error.message, ran


async def test_what_was_printed_before_the_failure_is_kept(sandbox: Sandbox):
    ran = await sandbox.run_program("print('so far')\n1 / 0", PATIENT)

    assert (ran.text, ran.error.line) == ("so far\n", 2)


async def test_a_flood_is_cut_and_counted(sandbox: Sandbox):
    ran = await sandbox.run_program("print('x' * 40_000)", PATIENT)

    assert (len(ran.text), ran.dropped_bytes, ran.error) == (16 * 1024, 40_001 - 16 * 1024, None)


async def test_nothing_of_a_program_is_there_for_the_next(sandbox: Sandbox):
    await sandbox.run_program("import builtins\nbuiltins.seen = 1", PATIENT)

    assert (await sandbox.run_program("import builtins\nhasattr(builtins, 'seen')", PATIENT)).text == "False\n"


async def test_programs_run_beside_one_another(sandbox: Sandbox):
    slow, quick = Limits(call_seconds=10.0), "print(1)"
    hanging = [asyncio.create_task(sandbox.run_program("while True: x = 1", slow)) for _ in range(3)]

    assert (await sandbox.run_program(quick, PATIENT)).text == "1\n"
    assert not any(task.done() for task in hanging)
    await _give_up(hanging)


async def test_whoever_stops_waiting_takes_the_program_along_and_frees_its_place(sandbox: Sandbox):
    """Eight workers, so four places for programs; all are taken by programs that would never end."""
    hanging = [asyncio.create_task(sandbox.run_program("while True: x = 1", Limits(call_seconds=100.0))) for _ in range(12)]
    await asyncio.sleep(0)

    await _give_up(hanging)

    assert (await sandbox.run_program("print(1)", PATIENT)).text == "1\n"


async def test_programs_leave_room_for_gradings(sandbox: Sandbox):
    hanging = [asyncio.create_task(sandbox.run_program("while True: x = 1", Limits(call_seconds=100.0))) for _ in range(8)]

    (verdict,) = await sandbox.grade("1:1", "def grade(sample, item):\n    return 1.0", [{"sample": {}, "item": {}}], PATIENT)

    assert verdict.reward == 1.0
    await _give_up(hanging)


async def test_a_sandbox_that_is_closed_is_unavailable():
    closed = Sandbox(SandboxSettings(tier="plain"))
    await closed.close()

    assert (await closed.run_program("print(1)")).error.kind == "unavailable"


async def _give_up(tasks: list[asyncio.Task]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
