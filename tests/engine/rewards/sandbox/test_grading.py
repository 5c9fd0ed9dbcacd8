"""What honest, clumsy and hostile rewards come back with: the right kind, the tenant's own line, and nobody else's loss."""

from __future__ import annotations

import asyncio
import textwrap

import pytest

from engine.rewards.sandbox import Failed, Graded, Limits, NotApplicable, Sandbox

# In the engine's stage for its length.
pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="module")]

ITEM = {"sample": {"output_text": "4"}, "item": {"answer": "4"}}
PATIENT, HASTY = Limits(call_seconds=20.0), Limits(call_seconds=0.5)
CALLS = iter(range(10**6))


def grade_body(body: str) -> str:
    return "def grade(sample, item):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ")


async def one(sandbox: Sandbox, source: str, limits: Limits = PATIENT, item: dict = ITEM):
    (verdict,) = await sandbox.grade(f"tenant:{next(CALLS)}", source, [item], limits)
    return verdict


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        ("0.25", 0.25),
        ("1", 1.0),
        ("True", 1.0),
        ("-3", -3.0),
        ("__import__('numpy').float32(0.5)", 0.5),
        ("__import__('numpy').bool_(True)", 1.0),
        ("__import__('numpy').int64(2)", 2.0),
    ],
)
async def test_a_plain_number_is_a_reward(sandbox, value, reward):
    assert await one(sandbox, grade_body(f"return {value}")) == Graded(reward=reward)


async def test_none_means_that_the_reward_does_not_apply(sandbox):
    assert await one(sandbox, grade_body("return None")) == NotApplicable()


async def test_a_dict_gives_its_reward_and_the_other_parts(sandbox):
    verdict = await one(sandbox, grade_body("return {'reward': 1, 'format': 0.5, 'right': True}"))
    assert verdict == Graded(reward=1.0, components={"format": 0.5, "right": 1.0})


async def test_a_dict_without_a_reward_adds_up(sandbox):
    assert (await one(sandbox, grade_body("return {'format': 0.5, 'right': 1}"))).reward == 1.5


BAD_VALUES = {
    "nan": "return float('nan')",
    "infinity": "return float('inf')",
    "minus infinity": "return -1e400",
    "text": "return '1.0'",
    "tuple": "return (1.0,)",
    "list": "return [1.0]",
    "complex": "return 1j",
    "bytes": "return b'1'",
    "huge": "return 10**5000",
    "too large": "return 1e10",
    "object": "return object()",
    "type": "return float",
    "fraction": "import fractions; return fractions.Fraction(1, 2)",
    "numpy nan": "import numpy; return numpy.float64('nan')",
    "numpy array": "import numpy; return numpy.ones(3)",
    "sympy": "import sympy; return sympy.Integer(1)",
    "empty dict": "return {}",
    "dict of text": "return {'a': '1'}",
    "dict of dict": "return {'a': {'b': 1}}",
    "keys that are none": "return {1: 1.0}",
    "dict of nan": "return {'a': float('nan')}",
    "many": "return {str(n): 1 for n in range(33)}",
    "sum out of range": "return {'a': 1e9, 'b': 1e9}",
    "generator": "return (1 for _ in 'x')",
    "lying float": """
        class Lie(float):
            def __float__(self): return 1.0
            def __repr__(self): return '1.0}'
            def __le__(self, other): return True
        return Lie('nan')
        """,
    "lying object": """
        class Lie:
            def __float__(self): return 1.0
            def __class__(self): return float
        return Lie()
        """,
    "reduce": """
        class Bomb:
            def __reduce__(self): return (print, ('unpickled',))
        return Bomb()
        """,
}


@pytest.mark.parametrize("name", BAD_VALUES)
async def test_what_is_no_number_is_a_bad_value(sandbox, name):
    verdict = await one(sandbox, grade_body(BAD_VALUES[name]))
    assert (type(verdict), verdict.kind) == (Failed, "bad_value"), verdict


async def test_an_async_grade_is_told_to_be_none(sandbox):
    verdict = await one(sandbox, "async def grade(sample, item):\n    return 1.0\n")
    assert verdict.kind == "bad_value" and "not `async def grade`" in verdict.message


FAILURES = {
    "exception": ("x = 1\nreturn 1 / 0", "exception", 3),
    "message of 100 MB": ("raise ValueError('x' * 100_000_000)", "exception", 2),
    "words that exit": ("import os\nclass E(Exception):\n    def __str__(self): os._exit(0)\nraise E", "crash", None),
    "words that hang": ("class E(Exception):\n    def __str__(self):\n        while True: x = 1\nraise E", "exception", 5),
    "words that raise": ("class E(Exception):\n    def __str__(self): raise SystemExit\nraise E", "exception", 4),
    "sys.exit": ("import sys\nsys.exit(0)", "exit", 3),
    "interrupt": ("raise KeyboardInterrupt", "exit", 2),
    "base exception": ("class B(BaseException): pass\nraise B", "exception", 3),
    "os._exit": ("import os\nos._exit(0)", "crash", None),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", "crash", 3),
    "abort": ("import os\nos.abort()", "crash", 3),
    "recursion": ("def f(): return f()\nreturn f()", "exception", 2),
    # Python needs memory for each frame that it takes down again, and there is none: it gets nowhere.
    "recursion without limit": ("import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nreturn f()", "hard_timeout", None),
    "one large block": ("x = bytearray(2 * 2**30)", "memory", 2),
    "many small blocks": ("x = []\nwhile True: x.append('x' * 100_000 + str(len(x)))", "memory", 3),
    "numpy block": ("import numpy\nnumpy.ones(2**30)", "memory", None),
    "surrogates": ("raise ValueError('\\ud800\\x00\\x1b[31m')", "exception", 2),
    "no such module": ("import requests", "exception", 2),
    "garbage on the reply channel": ("import os\nos.write(4, b'garbage, garbage')\nreturn 1.0", "protocol", None),
    "a frame too large": ("import os\nos.write(4, b'\\xff\\xff\\xff\\x7f')\nreturn 1.0", "protocol", None),
    "a frame of nothing": ("import os\nos.write(4, bytes(4))\nreturn 1.0", "protocol", None),
    "a deeply nested frame": ("import os\nos.write(4, (50000).to_bytes(4, 'little') + b'[' * 50000)\nreturn 1.0", "protocol", None),
    "a forged reply": (
        """import os
body = b'{"ask": "0123456789abcdef", "reward": 1.0}'
os.write(4, len(body).to_bytes(4, 'little') + body)
return 0.0""",
        "protocol",
        None,
    ),
    "a pickle": ("import os, pickle\nbody = pickle.dumps(print)\nos.write(4, len(body).to_bytes(4, 'little') + body)", "protocol", None),
    "closed channels": ("import os\nos.close(3)\nos.close(4)\nreturn 1.0", "crash", None),
    "patched json": ("import json\njson.dumps = json.loads = None\nraise ValueError", "crash", None),
    "patched write": ("import os\nos.write = lambda *a: 0\nraise SystemExit", "hard_timeout", None),
    "all sources of time patched": (
        "import time, signal\ntime.time = time.monotonic = lambda: 0\nsignal.setitimer(0, 0)\nsignal.alarm(0)\nwhile True: x = 1",
        "hard_timeout",
        6,
    ),
    "endless loop": ("while True: x = 1", "timeout", 2),
    "sleep": ("import time\ntime.sleep(1000)", "timeout", 3),
    "ignored alarm": ("import signal\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: x = 1", "hard_timeout", 4),
    "blocked signals": ("import signal\nsignal.pthread_sigmask(0, range(1, 64))\nwhile True: x = 1", "hard_timeout", None),
    "loop that catches everything": (
        "while True:\n    try:\n        for x in iter(int, 1): pass\n    except BaseException: pass",
        "hard_timeout",
        4,
    ),
    "loop inside C": ("import itertools, collections\ncollections.deque(itertools.repeat(1), maxlen=0)", "hard_timeout", 3),
    "factorial": ("import math\nmath.factorial(10**8)", "timeout", 3),
    "text bomb": ("import sys\nsys.set_int_max_str_digits(0)\nstr(1 << 10**8)", "timeout", 4),
    "regex": ("import re\nre.match(r'(a|a)*$', 'a' * 60 + 'b')", "timeout", 3),
    "a handler that never returns": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: [0 for _ in iter(int, 1)])\nwhile True: x = 1",
        "hard_timeout",
        3,
    ),
    "a trace function that hangs": ("import sys\ndef hang(*a):\n    while True: x = 1\nsys.settrace(hang)\n(lambda: 1)()", "timeout", 4),
}
SLOW = {"timeout", "hard_timeout"}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_has_its_kind_and_the_tenants_line(sandbox, name):
    body, kind, line = FAILURES[name]
    verdict = await one(sandbox, grade_body(body), HASTY if kind in SLOW else PATIENT)
    assert (verdict.kind, line or verdict.line) == (kind, verdict.line), verdict
    assert len(verdict.message) <= 600 and verdict.message.isprintable()


IMPORTS = {
    "syntax": ("def grade(sample, item):\n    return (1", 2),
    "indentation": ("def grade(sample, item):\nreturn 1", 2),
    "exception": ("x = 1\n\nraise RuntimeError('at import')\n", 3),
    "missing module": ("import os\nimport torch\n", 2),
    "no grade": ("def reward(sample, item): return 1.0", None),
    "grade is no function": ("grade = 1.0", None),
    "exit": ("import sys\nsys.exit()", 2),
    "sudden end": ("import os\nos._exit(3)", None),
    "NUL": ("x = 1\0", None),
    "surrogate": ("x = '\ud800'\n", None),
    "nested too deeply": ("x = " + "(" * 5000 + ")" * 5000, None),
    "a file": ("open('/etc/passwd')", 1),
    "memory": ("\nx = bytearray(2**31)", 2),
}


@pytest.mark.parametrize("name", IMPORTS)
async def test_a_source_that_does_not_load_is_an_import_error_with_its_line(sandbox, name):
    source, line = IMPORTS[name]
    verdict = await one(sandbox, source)
    assert (verdict.kind, line or verdict.line) == ("import_error", verdict.line), verdict


async def test_a_source_that_is_too_large_is_not_even_sent(sandbox):
    assert (await one(sandbox, "#" * (256 * 1024 + 1))).message == "the source is larger than 256 kB"


async def test_an_item_that_is_too_large_fails_alone(sandbox):
    large = {"sample": {"output_text": "x" * 5 * 2**20}, "item": {}}
    verdicts = await sandbox.grade("large", grade_body("return 1.0"), [ITEM, large, ITEM], PATIENT)
    assert [getattr(verdict, "kind", "graded") for verdict in verdicts] == ["graded", "too_large", "graded"]


async def test_of_64_items_a_hanging_one_costs_only_itself(sandbox):
    source = grade_body("""
        import signal
        if item["n"] == 17:
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            while True: x = 1
        return float(item["n"])
        """)
    verdicts = await sandbox.grade("hang", source, [{"sample": {}, "item": {"n": n}} for n in range(64)], HASTY)
    assert verdicts[17].kind == "hard_timeout"
    assert [verdict.reward for n, verdict in enumerate(verdicts) if n != 17] == [float(n) for n in range(64) if n != 17]


async def test_a_worker_cannot_answer_for_an_item_that_is_still_to_come(sandbox):
    source = grade_body("""
        import os, sys
        if item["n"] == 0:
            frame = sys._getframe()
            while "ask" not in frame.f_locals: frame = frame.f_back
            body = ('{"ask": "%s", "reward": 0.99}' % frame.f_locals["ask"]).encode()
            os.write(4, (len(body).to_bytes(4, "little") + body) * 4)
        return 0.0
        """)
    verdicts = await sandbox.grade("forger", source, [{"sample": {}, "item": {"n": n}} for n in range(4)], PATIENT)
    assert verdicts[0].kind == "protocol"
    assert verdicts[1:] == [Graded(reward=0.0)] * 3


async def test_a_second_reply_takes_the_first_one_back(sandbox):
    source = grade_body("""
        import os, sys, time
        if item["n"] == 0:
            frame = sys._getframe()
            while "ask" not in frame.f_locals: frame = frame.f_back
            body = ('{"ask": "%s", "reward": 0.99}' % frame.f_locals["ask"]).encode()
            os.write(4, len(body).to_bytes(4, "little") + body)
            time.sleep(0.2)
        return 0.0
        """)
    verdicts = await sandbox.grade("twice", source, [{"sample": {}, "item": {"n": n}} for n in range(3)], PATIENT)
    assert verdicts[0].kind == "protocol"
    assert verdicts[1:] == [Graded(reward=0.0)] * 2


async def test_too_many_lost_workers_end_a_request(sandbox):
    limits = Limits(call_seconds=20.0, max_losses=2)
    verdicts = await sandbox.grade("losses", grade_body("import os; os._exit(1)"), [ITEM] * 4, limits)
    assert [verdict.kind for verdict in verdicts] == ["crash", "crash", "aborted", "aborted"]


async def test_what_a_tenant_leaves_behind_never_meets_another(sandbox):
    dirty = grade_body("""
        import builtins, math, json
        builtins.len = lambda x: 42
        math.floor = json.loads = builtins.print = None
        return 1.0
        """)
    clean = grade_body("import math, json; return float(len('ab') + math.floor(1.5))")
    await one(sandbox, dirty)
    assert await one(sandbox, clean) == Graded(reward=3.0)


async def test_one_tenants_calls_share_a_worker_and_another_source_does_not(sandbox):
    counting = "n = 0\ndef grade(sample, item):\n    global n\n    n += 1\n    return n\n"
    first = await sandbox.grade("count:1", counting, [ITEM, ITEM], PATIENT)
    again = await sandbox.grade("count:1", counting, [ITEM], PATIENT)
    other = await sandbox.grade("count:2", counting, [ITEM], PATIENT)
    assert [verdict.reward for verdict in (*first, *again, *other)] == [1.0, 2.0, 3.0, 1.0]


async def test_of_a_flood_of_output_the_first_16_kb_are_kept_and_the_rest_is_counted(sandbox):
    source = grade_body("print('a line'); print('x' * 40_000_000); return 1.0")
    assert await sandbox.grade("flood", source, [ITEM], PATIENT) == [Graded(reward=1.0)]
    output = await sandbox.output("flood", source)
    assert output.text.startswith("a line\nxxx")
    assert (len(output.text), output.dropped_bytes) == (16 * 1024, 40_000_008 - 16 * 1024)


async def test_what_was_printed_before_a_hang_is_kept_and_nothing_of_ours_with_it(sandbox):
    source = grade_body("import signal\nprint('before')\nsignal.signal(signal.SIGALRM, signal.SIG_IGN)\nwhile True: x = 1")
    (verdict,) = await sandbox.grade("printer", source, [ITEM], HASTY)
    assert (verdict.kind, verdict.line) == ("hard_timeout", 5)
    assert (await sandbox.output("printer", source)).text == "before\n"


async def test_text_of_any_kind_goes_in_and_comes_out(sandbox):
    item = {"sample": {"output_text": "\ud800\0\U0001f600"}, "item": {"n": 10**30, "deep": [[[None, True, 1.5]]]}}
    source = grade_body("return len(sample['output_text']) + (item['n'] == 10**30) + (item['deep'] == [[[None, True, 1.5]]])")
    assert await one(sandbox, source, item=item) == Graded(reward=5.0)


async def test_the_promised_libraries_work(sandbox):
    source = """
import numpy, sympy
from math_verify import parse, verify

def grade(sample, item):
    x = sympy.Symbol("x")
    right = verify(parse("$\\\\frac{1}{2}$"), parse("0.5"))
    return {"math": right, "sympy": int(sympy.solve(x - 3)[0]), "numpy": numpy.linalg.norm(numpy.array([3.0, 4.0]))}
"""
    verdict = await one(sandbox, source)
    assert verdict.components == {"math": 1.0, "sympy": 3.0, "numpy": 5.0}


async def test_a_hang_after_math_verify_took_the_timer_is_ended_by_the_host(sandbox):
    source = grade_body("from math_verify import parse\nparse('$1$')\nwhile True: x = 1")
    verdict = await one(sandbox, source, HASTY)
    assert verdict.kind == "hard_timeout"
    assert verdict.line == 4


async def test_calls_at_once_get_their_own_answers(sandbox):
    source = grade_body("return item['n']")
    calls = [sandbox.grade("many", source, [{"sample": {}, "item": {"n": n}}], PATIENT) for n in range(100)]
    assert [verdicts[0].reward for verdicts in await asyncio.gather(*calls)] == [float(n) for n in range(100)]


async def test_more_tenants_than_workers_are_all_served(sandbox):
    calls = [sandbox.grade(f"crowd:{n}", grade_body(f"return {n}"), [ITEM], PATIENT) for n in range(20)]
    assert [verdicts[0].reward for verdicts in await asyncio.gather(*calls)] == [float(n) for n in range(20)]
