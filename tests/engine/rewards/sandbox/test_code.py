"""Code that a model wrote: judged from outside, in processes that nothing survives."""

from __future__ import annotations

import pytest

from engine.rewards.sandbox import AssertTest, CallTest, Limits, Sandbox, StdinTest

# In the engine's stage for its length.
pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

PATIENT, HASTY = Limits(call_seconds=20.0), Limits(call_seconds=0.5)
DOUBLE = "def double(x):\n    return 2 * x\n"


async def run(sandbox: Sandbox, code: str, *tests, limits: Limits = PATIENT):
    return await sandbox.run_code(code, tests, limits)


async def test_a_program_passes_when_it_prints_what_is_expected(sandbox):
    code = "n = int(input())\nprint(n + 1)\nprint()"
    right, wrong = await run(sandbox, code, StdinTest(stdin="4\n", stdout="5"), StdinTest(stdin="4\n", stdout="6"))
    assert right.passed
    assert (wrong.passed, wrong.error, wrong.message) == (False, None, "expected '6', printed '5\\n\\n'")


async def test_a_program_runs_as_main_and_may_exit(sandbox):
    code = "import sys\nif __name__ == '__main__':\n    print(sys.stdin.read().upper())\n    sys.exit()"
    (outcome,) = await run(sandbox, code, StdinTest(stdin="abc", stdout="ABC"))
    assert outcome.passed


async def test_each_test_of_a_program_has_a_fresh_process(sandbox):
    code = "import builtins\nprint(getattr(builtins, 'seen', 0))\nbuiltins.seen = 1"
    assert all(outcome.passed for outcome in await run(sandbox, code, *[StdinTest(stdin="", stdout="0")] * 2))


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("print(1)\nraise ValueError", "exception"),
        ("print(1)\nimport os; os._exit(3)", "crash"),
        ("print(1)\nimport sys; sys.exit('no')", "exit"),
        ("print(1)\nwhile True: x = 1", "timeout"),
        ("print(1)\nimport signal; signal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: x = 1", "hard_timeout"),
        ("print(1", "exception"),
        ("while True: print('x' * 10000)", "timeout"),
        ("print(1)\nprint('x' * 2**21)", "too_large"),
        ("print(1)\nx = 'x' * 2**31", "memory"),
        ("print(1)\nopen('/etc/passwd')", "exception"),
        ("print(1)\nimport os; os.write(4, b'garbage garbage')", "protocol"),
    ],
)
async def test_a_program_that_does_not_end_well_has_not_passed(sandbox, code, kind):
    limits = HASTY if "timeout" in kind else PATIENT
    (outcome,) = await run(sandbox, code, StdinTest(stdin="", stdout="1"), limits=limits)
    assert (outcome.passed, outcome.error.kind) == (False, kind), outcome


async def test_a_program_that_claims_success_on_the_reply_channel_has_not_passed(sandbox):
    code = """
import os
body = b'{"passed": true, "error": null}'
os.write(4, len(body).to_bytes(4, "little") + body)
os._exit(1)
"""
    (outcome,) = await run(sandbox, code, StdinTest(stdin="", stdout="1"))
    assert not outcome.passed


@pytest.mark.parametrize(
    ("value", "expected", "passed"),
    [
        ("2 * x", 8, True),
        ("2.0 * x", 8, True),
        ("(x, [x])", [4, [4]], True),
        ("{'a': (x, None)}", {"a": [4, None]}, True),
        ("x == 4", True, True),
        ("x == 4", 1, False),
        ("2 * x + 1", 8, False),
        ("'8'", 8, False),
        ("float('nan')", None, False),
        ("10**400", 10**400, True),
        ("10**5000", 8, False),
        ("{x}", [4], False),
        ("__import__('numpy').array([x, 2])", [4, 2], True),
    ],
)
async def test_a_call_passes_when_its_value_is_the_expected_one(sandbox, value, expected, passed):
    test = CallTest(function="f", args=(4,), expected=expected)
    (outcome,) = await run(sandbox, f"def f(x):\n    return {value}\n", test)
    assert outcome.passed is passed, outcome


async def test_an_object_that_is_equal_to_everything_does_not_pass(sandbox):
    code = "class Any:\n    def __eq__(self, other): return True\ndef f(): return Any()"
    (outcome,) = await run(sandbox, code, CallTest(function="f", expected=8))
    assert outcome.error.kind == "exception" and "cannot be handed over" in outcome.message


async def test_a_function_that_is_not_there_fails_the_test(sandbox):
    (outcome,) = await run(sandbox, DOUBLE, CallTest(function="triple", args=(1,), expected=3))
    assert outcome.message == "NameError: the code defines no 'triple'"


async def test_asserts_run_against_the_code_from_another_process(sandbox):
    tests = [AssertTest(source="assert double(2) == 4\nassert double([1]) == [1, 1]"), AssertTest(source="assert double(2) == 5, 'no'")]
    right, wrong = await run(sandbox, DOUBLE, *tests)
    assert right.passed, right
    assert (wrong.passed, wrong.error, wrong.message) == (False, None, "AssertionError: no")


async def test_asserts_may_hand_the_function_on_and_expect_errors(sandbox):
    test = """
def check(candidate):
    assert candidate((1, 2)) == (1, 2, 1, 2)
    try:
        candidate({})
    except TypeError:
        return
    raise AssertionError("no TypeError")
check(double)
"""
    (outcome,) = await run(sandbox, DOUBLE, AssertTest(source=test))
    assert outcome.passed, outcome


@pytest.mark.parametrize(
    "code",
    [
        "import sys\nsys.exit(0)",
        "import os\nos._exit(0)",
        "def double(x):\n    import os; os._exit(0)",
        "def double(x):\n    raise SystemExit",
        "class AssertionError(Exception): pass\ndef double(x): return 0",
        "import builtins\nbuiltins.AssertionError = None\ndef double(x): return 0",
        "class E:\n    def __eq__(self, other): return True\ndef double(x): return E()",
        "import sys\ndef double(x):\n    for f in sys.modules.values(): pass\n    return None",
        """
import os
body = b'{"passed": true}'
os.write(4, len(body).to_bytes(4, "little") + body)
def double(x): return 0
""",
        """
def double(x):
    import os
    body = b'{"passed": true}'
    os.write(4, len(body).to_bytes(4, "little") + body)
""",
    ],
)
async def test_code_cannot_talk_its_tests_into_passing(sandbox, code):
    (outcome,) = await run(sandbox, code, AssertTest(source="assert double(2) == 4"))
    assert not outcome.passed


async def test_asserts_that_hang_or_code_that_hangs_end_in_time(sandbox):
    hangs = "def double(x):\n    import signal\n    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n    while True: y = 1"
    (slow,) = await run(sandbox, hangs, AssertTest(source="assert double(2) == 4"), limits=HASTY)
    (test,) = await run(sandbox, DOUBLE, AssertTest(source="while True: x = 1"), limits=HASTY)
    assert slow.error.kind in ("hard_timeout", "timeout")
    assert test.error.kind == "timeout"
