"""The sandbox for tenants' code: Python rewards, and the code that models write. Nothing else in the engine runs such code.

    sandbox = Sandbox()                      # SandboxSettings(...) for tiers and sizes
    strength = await sandbox.start()         # starts the runner process; raises TooWeak where the machine cannot hold the required walls
    verdicts = await sandbox.grade(key, source, items, Limits(call_seconds=5.0))
    outcomes = await sandbox.run_code(code, tests, Limits(call_seconds=5.0))
    ran = await sandbox.run_program(code, Limits(call_seconds=5.0))
    output = await sandbox.output(key, source)
    await sandbox.close()                    # no process is left

``grade(key, source, items, limits=Limits()) -> list[Verdict]``
    ``key`` names the (tenant, reward version), for example ``"17:3"``: calls with one key and one source share a worker process, and no
    other call ever does. ``source`` defines ``grade(sample, item)``. ``items`` are ``{"sample": {...}, "item": {...}}``, each of JSON
    values. The answer has one verdict per item, in order:

    - ``Graded(reward, components)``: the reward. From a dict, ``reward`` is its ``"reward"`` key, or the sum of its values where it has
      none, and ``components`` are its other values.
    - ``NotApplicable()``: the reward answered None.
    - ``Failed(kind, message, line, trace)``: no reward; ``verdicts.ErrorKind`` lists the kinds. ``kind == "unavailable"`` is the
      platform's failure, all others the tenant's.

    Never raises on any source or item, and never answers later than its limits say. Calls may run at once, also with one key: items of
    waiting calls are put together, so that asking for each completion on its own costs little more than asking for a batch.

``run_code(code, tests, limits=Limits()) -> list[TestOutcome]``
    Runs code that a model wrote in fresh processes, forked for this call only, and judges it from outside: what is expected never enters
    the process of the code, and a verdict is never taken from its words. ``tests``: ``StdinTest``, ``CallTest`` or ``AssertTest``, each
    with ``limits.call_seconds``. One outcome per test, in order.

``run_program(code, limits=Limits()) -> Ran``
    Runs code that a model wrote in a fresh process of its own and tells what it printed. As in an interactive session, the value of a
    last line that is an expression is printed too. At most half of the workers run programs, so that gradings never wait for them all;
    whoever stops waiting for the answer takes the program along.

``to_json(verdict)`` is the shape that pages, API and command line show. How strong the walls are is ``sandbox.strength``
(``Strength.as_dict()`` for status pages); ``await prove(settings)`` only tries the walls, and raises ``TooWeak`` where they do not
hold. The same from a shell: ``python -m engine.rewards run``.
"""

from engine.rewards.sandbox.client import Launch, Sandbox, prove
from engine.rewards.sandbox.strength import SandboxSettings, Strength, TooWeak
from engine.rewards.sandbox.verdicts import (
    AssertTest,
    CallTest,
    CodeTest,
    ErrorKind,
    Failed,
    Graded,
    Limits,
    NotApplicable,
    Output,
    Ran,
    StdinTest,
    TestOutcome,
    Verdict,
    to_json,
)

__all__ = [
    "AssertTest",
    "CallTest",
    "CodeTest",
    "ErrorKind",
    "Failed",
    "Graded",
    "Launch",
    "Limits",
    "NotApplicable",
    "Output",
    "Ran",
    "Sandbox",
    "SandboxSettings",
    "StdinTest",
    "Strength",
    "TestOutcome",
    "TooWeak",
    "Verdict",
    "prove",
    "to_json",
]
