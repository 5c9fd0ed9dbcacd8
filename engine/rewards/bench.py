"""The sandbox's speeds on this machine: ``python -m engine.rewards bench``. Each figure stands beside what it is measured against.

The whole way is measured, from ``Sandbox.grade`` through the runner to the worker and back.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from statistics import median, quantiles
from typing import Any

from engine.rewards.sandbox import Failed, Limits, Sandbox, SandboxSettings

TRIVIAL = 'def grade(sample, item):\n    return float(sample["output_text"] == item["answer"])\n'
MATH = (
    "from math_verify import parse, verify\n\n"
    "def grade(sample, item):\n"
    "    reference, answer = (parse(text, parsing_timeout=None) for text in (item['answer'], sample['output_text']))\n"
    "    return verify(reference, answer, timeout_seconds=None)\n"
)
HANGING = (
    "import signal\n\n"
    "def grade(sample, item):\n"
    "    if item['n'] == 17:\n"
    "        signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    "        while True:\n"
    "            x = 1\n"
    "    return 1.0\n"
)
HOSTILE = (
    "import signal, os\n\n"
    "def grade(sample, item):\n"
    "    if item['n'] % 3 == 0:\n"
    "        os.write(4, b'garbage' * 1000)\n"
    "    if item['n'] % 3 == 1:\n"
    "        print('x' * 40_000_000)\n"
    "        os._exit(1)\n"
    "    signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
    "    while True:\n"
    "        x = 1\n"
)
ITEM = {"sample": {"output_text": "42"}, "item": {"answer": "42"}}
BATCH_ITEMS = 64
PATIENT = Limits(call_seconds=60.0)


async def measure(settings: SandboxSettings) -> dict[str, Any]:
    """All figures. Seconds unless the name says otherwise."""
    sandbox = Sandbox(settings)
    started = time.perf_counter()
    strength = await sandbox.start()
    figures: dict[str, Any] = {"tier": strength.tier, "start_seconds": time.perf_counter() - started}
    try:
        figures |= await _trivial(sandbox)
        figures |= await _assignment(sandbox)
        figures |= await _hang(sandbox)
        figures |= await _mathematics(sandbox)
        figures |= await _crowd(sandbox)
    finally:
        await sandbox.close()
    return figures


def words(figures: dict[str, Any]) -> str:
    return "\n".join(f"{name:<36}{value if isinstance(value, str) else f'{value:,.4g}'}" for name, value in figures.items())


async def _trivial(sandbox: Sandbox, *, rounds: int = 60) -> dict[str, float]:
    """Calls per second with everything (engine, runner, worker) on one core: the best of three, since others use the machine too."""
    cores = os.sched_getaffinity(0)
    pinned = _tree()
    await sandbox.grade("trivial", TRIVIAL, [ITEM], PATIENT)
    pinned |= _tree()
    _pin(pinned, {min(cores)})
    try:
        rates = []
        for _ in range(3):
            started = time.perf_counter()
            for _ in range(rounds):
                await sandbox.grade("trivial", TRIVIAL, [ITEM] * BATCH_ITEMS, PATIENT)
            rates.append(rounds * BATCH_ITEMS / (time.perf_counter() - started))
    finally:
        _pin(pinned, cores)
    return {"trivial_calls_per_second_one_core": max(rates)}


async def _assignment(sandbox: Sandbox, *, tenants: int = 12) -> dict[str, float]:
    """From asking for a tenant's first item to its verdict, with a worker kept ready."""
    seconds = []
    for number in range(tenants):
        await asyncio.sleep(0.2)  # the next spare gets ready meanwhile
        started = time.perf_counter()
        await sandbox.grade(f"new:{number}", TRIVIAL, [ITEM], PATIENT)
        seconds.append(time.perf_counter() - started)
    return {"assignment_ms_median": median(seconds) * 1e3, "assignment_ms_worst": max(seconds) * 1e3}


async def _hang(sandbox: Sandbox) -> dict[str, float]:
    """64 items at a limit of one second, one of which cannot be interrupted."""
    items = [{"sample": {}, "item": {"n": number}} for number in range(BATCH_ITEMS)]
    started = time.perf_counter()
    verdicts = await sandbox.grade("hanging", HANGING, items, Limits(call_seconds=1.0))
    seconds = time.perf_counter() - started
    failed = [verdict.kind for verdict in verdicts if isinstance(verdict, Failed)]
    return {"hang_seconds": seconds, "hang_graded": BATCH_ITEMS - len(failed), "hang_failed": ", ".join(failed)}


async def _mathematics(sandbox: Sandbox, *, rounds: int = 5) -> dict[str, float]:
    """math-verify inside against the same calls in this process, by turns."""
    from math_verify import parse, verify

    pairs = [(f"$\\frac{{{2 * n}}}{{{n + 2}}}$", f"so the answer is $\\frac{{{4 * n}}}{{{2 * n + 4}}}$") for n in range(BATCH_ITEMS)]
    items = [{"sample": {"output_text": answer}, "item": {"answer": reference}} for reference, answer in pairs]

    def outside() -> None:
        for reference, answer in pairs:
            verify(parse(reference, parsing_timeout=None), parse(answer, parsing_timeout=None), timeout_seconds=None)

    inside_seconds, outside_seconds = [], []
    for _ in range(rounds):
        inside_seconds.append(await _timed(lambda: sandbox.grade("math", MATH, items, PATIENT)))
        started = time.perf_counter()
        outside()
        outside_seconds.append(time.perf_counter() - started)
    inside, plain = min(inside_seconds[1:]), min(outside_seconds[1:])
    return {"math_ms_inside": inside / BATCH_ITEMS * 1e3, "math_ms_outside": plain / BATCH_ITEMS * 1e3, "math_ratio": inside / plain}


async def _crowd(sandbox: Sandbox, *, tenants: int = 49, seconds: float = 6.0) -> dict[str, float]:
    """Tenants who grade now and then: their 99th percentile alone, and beside one who hangs, floods and forges without pause."""
    await asyncio.gather(*(sandbox.grade(f"crowd:{n}", TRIVIAL, [ITEM], PATIENT) for n in range(tenants)))
    alone = await _visits(sandbox, tenants, seconds)
    hostile = asyncio.create_task(_attack(sandbox))
    await asyncio.sleep(0.5)
    beside = await _visits(sandbox, tenants, seconds)
    hostile.cancel()
    await asyncio.gather(hostile, return_exceptions=True)
    return {"crowd_p99_ms_alone": alone * 1e3, "crowd_p99_ms_beside_hostile": beside * 1e3, "crowd_p99_ratio": beside / alone}


async def _visits(sandbox: Sandbox, tenants: int, seconds: float) -> float:
    """The 99th percentile of one item's latency; each tenant grades one every 100 ms."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def visit(number: int) -> None:
        await asyncio.sleep(number / tenants / 10)
        while time.perf_counter() < end:
            latencies.append(await _timed(lambda: sandbox.grade(f"crowd:{number}", TRIVIAL, [ITEM], PATIENT)))
            await asyncio.sleep(0.1)

    await asyncio.gather(*map(visit, range(tenants)))
    return quantiles(latencies, n=100)[98]


async def _attack(sandbox: Sandbox) -> None:
    items = [{"sample": {}, "item": {"n": number}} for number in range(BATCH_ITEMS)]
    while True:
        await sandbox.grade("hostile", HOSTILE, items, Limits(call_seconds=1.0, max_losses=BATCH_ITEMS))


async def _timed(work: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


def _tree() -> set[int]:
    """This process and all below it."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _pin(pids: set[int], cores: set[int]) -> None:
    for pid in pids:
        try:
            os.sched_setaffinity(pid, cores)
        except (ProcessLookupError, PermissionError):
            continue
