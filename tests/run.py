"""Runs the whole suite in stages: ``python -m tests.run [stage …]``. What ``make test`` and CI call.

Each stage has a deadline and is a pytest run of its own, since what it may import, and on which database it runs, differs. Those that
need one core and no quiet run beside each other, one more of them at a time than there are cores, since each waits now and then. The last
stage proves that every test of the tree ran in one of them. Nothing is skipped: see ``tests/plugins/nothing_skipped.py``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from tests.support import postgres

ROOT = Path(__file__).resolve().parent.parent
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ELSEWHERE = "not engine and not browser and not stack and not soak"
PORTAL = ("tests/portal", "tests/tenants")
# What is marked ``engine`` and needs neither vLLM nor Ray: torch, or the sandbox of tenants' code. Two ranks need two cores, and quiet.
TRAIN = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "tests/engine/train").glob("test_*.py"))
TORCH = ("tests/engine/models", "tests/engine/rewards", *(path for path in TRAIN if not path.endswith("test_ranks.py")))
ENGINE = "engine and not stack and not browser and not soak"
AT_ONCE = (os.cpu_count() or 1) + 1


@dataclass(frozen=True, kw_only=True)
class Stage:
    """``command``: words after the interpreter. ``tests``: it runs pytest and reports which tests passed.

    ``sociable``: it runs beside those next to it in the list that are so too, the first of them first.
    """

    name: str
    command: tuple[str, ...]
    deadline_seconds: int
    tests: bool = True
    on_postgres: bool = False
    needs_browser: bool = False
    sociable: bool = False


def pytest_stage(name: str, deadline_seconds: int, *words: str, **more: bool) -> Stage:
    return Stage(name=name, command=("-m", "pytest", "-q", "--durations=5", *words), deadline_seconds=deadline_seconds, **more)


LIGHT = ("-p", "no:django", "-p", "no:playwright", "-p", "tests.plugins.light_imports")
UNTYPED_DJANGO = ("--follow-imports=silent", "--ignore-missing-imports", "--allow-subclassing-any", "--allow-untyped-decorators")
STAGES = (
    Stage(name="style", command=("-m", "ruff", "check", "."), deadline_seconds=60, tests=False),
    Stage(name="format", command=("-m", "ruff", "format", "--check", "."), deadline_seconds=60, tests=False),
    # Money is typed. The SDK's types come from Stripe's own description of its interface: a call that they refuse, Stripe refuses.
    # Django has none: its classes and decorators are taken as they are.
    Stage(
        name="types",
        command=("-m", "mypy", "--strict", *UNTYPED_DJANGO, "portal/billing"),
        deadline_seconds=600,
        tests=False,
    ),
    pytest_stage("postgres", 2400, "-m", ELSEWHERE, *PORTAL, on_postgres=True, sociable=True),
    pytest_stage("portal", 2400, "-m", f"{ELSEWHERE} and not postgres", *PORTAL, sociable=True),
    pytest_stage("browser", 2400, "-m", "browser and not soak", "tests", needs_browser=True, sociable=True),
    pytest_stage("torch", 1500, "-m", ENGINE, *TORCH, sociable=True),
    pytest_stage("stack", 1500, "-m", "stack and not browser and not soak", "tests", sociable=True),
    pytest_stage(
        "unit",
        1500,
        *LIGHT,
        "-m",
        f"{ELSEWHERE} and not postgres",
        "tests",
        *(f"--ignore={path}" for path in (*PORTAL, "tests/browser")),
        sociable=True,
    ),
    pytest_stage("engine", 2400, "-m", ENGINE, "tests", *(f"--ignore={path}" for path in TORCH)),
)
SOAK = (pytest_stage("soak", 7200, "-m", "soak", "tests"),)


def main(names: list[str]) -> int:
    stages = SOAK if names == ["soak"] else [stage for stage in STAGES if not names or stage.name in names]
    if unknown := set(names) - {stage.name for stage in (*STAGES, *SOAK)}:
        print(f"no such stage: {', '.join(sorted(unknown))}; there are {', '.join(stage.name for stage in STAGES)}", file=sys.stderr)
        return 2
    if any(stage.needs_browser for stage in stages) and not any(map(shutil.which, BROWSERS)):
        print(f"The browser tests need Chromium, and there is none here. This line brings it:\n  {_browser_line()}", file=sys.stderr)
        return 1
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="marlaas-tests-") as scratch:
        ledger = Path(scratch) / "passed"
        results = [result for wave in _waves(stages) for result in together(wave, ledger, AT_ONCE)]
        complete = bool(names) or _everything_ran(ledger)
        passed = len(set(ledger.read_text().splitlines())) if ledger.exists() else 0
    return _report(results, passed, complete, time.monotonic() - started)


def _waves(stages: Sequence[Stage]) -> list[list[Stage]]:
    """The stages in their order, those that may run at once together."""
    return [wave for sociable, run in groupby(stages, lambda stage: stage.sociable) for wave in ([list(run)] if sociable else zip(run))]


def together(stages: Sequence[Stage], ledger: Path, at_once: int) -> list[tuple[Stage, int, float]]:
    """(stage, exit status, seconds) of each, when all are done; ``at_once`` of them at a time. When this ends, so have all of them."""
    waiting, under_way, ended = list(stages), {}, {}
    with contextlib.ExitStack() as all_of_them:
        while waiting or under_way:
            while waiting and len(under_way) < at_once:
                stage = waiting.pop(0)
                print(f"\n=== {stage.name} ===", flush=True)
                one = all_of_them.enter_context(contextlib.ExitStack())
                under_way[stage] = one, one.enter_context(_running(stage, ledger, alone=len(stages) == 1)), time.monotonic()
            time.sleep(0.1)
            for stage, (one, process, started) in list(under_way.items()):
                seconds = time.monotonic() - started
                if process.poll() is not None or seconds > stage.deadline_seconds:
                    ended[stage] = _status(stage, process), seconds
                    del under_way[stage]
                    one.close()
    return [(stage, *ended[stage]) for stage in stages]


def _status(stage: Stage, process: subprocess.Popen) -> int:
    if process.returncode is None:
        print(f"{stage.name}: not done after {stage.deadline_seconds} s", file=sys.stderr)
        return 124
    return process.returncode


@contextlib.contextmanager
def _database(stage: Stage) -> Iterator[Mapping[str, str]]:
    if not stage.on_postgres:
        yield {}
        return
    with postgres.server() as url:
        yield {"MARLAAS_TEST_DATABASE_URL": url}


@contextlib.contextmanager
def _running(stage: Stage, ledger: Path, *, alone: bool) -> Iterator[subprocess.Popen]:
    """It runs in a process group of its own, so that a late or broken stage takes its services with it."""
    piped = {} if alone else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "errors": "replace"}
    with _database(stage) as environment:
        environment = {**os.environ, **environment, "MARLAAS_TEST_LEDGER": str(ledger)}
        process = subprocess.Popen([sys.executable, *stage.command], cwd=ROOT, env=environment, process_group=0, **piped)
        teller = threading.Thread(target=_pass_on, args=(process.stdout or (), f"{stage.name:8} | "))
        teller.start()
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            teller.join(10)


def _pass_on(lines: Iterable[str], prefix: str) -> None:
    for line in lines:
        print(prefix, line, sep="", end="", flush=True)


def _everything_ran(ledger: Path) -> bool:
    """Whether each test of the tree passed in some stage; names those that did not."""
    print("\n=== complete ===", flush=True)
    listing = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "-m", "not soak", "tests"]
    collected = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    known = {line for line in collected.stdout.splitlines() if "::" in line}
    missed = sorted(known - set(ledger.read_text().splitlines() if ledger.exists() else ()))
    for test in missed:
        print(f"did not pass in any stage: {test}")
    if collected.returncode:
        print(collected.stdout[-3000:] + collected.stderr[-3000:])
    return bool(known) and not missed and collected.returncode == 0


def _report(results: list[tuple[Stage, int, float]], passed: int, complete: bool, wall_seconds: float) -> int:
    failed = sum(status != 0 for _, status, _ in results) + (not complete)
    print("\n=== summary ===")
    for stage, status, seconds in results:
        print(f"  {'ok  ' if status == 0 else 'FAIL'}  {stage.name:9} {seconds:6.1f} s")
    if not complete:
        print("  FAIL  complete   some test ran in no stage, or did not pass")
    print(f"  total {wall_seconds:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _browser_line() -> str:
    line = (
        "apt-get install -y chromium"
        if shutil.which("apt-get")
        else "dnf install -y chromium"
        if shutil.which("dnf")
        else "install chromium"
    )
    return line if os.geteuid() == 0 or line.startswith("install") else f"sudo {line}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
