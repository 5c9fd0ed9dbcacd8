"""Kills every process of one run. All of them inherit ``MARLAAS_RUN=<tag>``, so even re-parented children are found.

Run as a script it waits for its stdin to end, which happens when the launcher dies in whatever way, and then sweeps. Linux's parent-death
signal alone does not do: Ray's workers and vLLM's engine core are grandchildren. Standard library only: it must stay tiny.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

TAG_VARIABLE = "MARLAAS_RUN"
# A process that gives itself a title (vLLM's engine core does) writes it over its environment, and its tag is gone, unless this is set. Ray
# sets it for its own.
KEEPS_ENVIRONMENT = {"SPT_NOENV": "1"}
SWEEP_SECONDS = 10.0


def tagged(tag: str) -> list[int]:
    """Process ids whose environment carries the tag, without this process."""
    needle = f"{TAG_VARIABLE}={tag}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environ = (entry / "environ").read_bytes()
        except OSError:  # ended meanwhile, or another user's
            continue
        if needle in environ.split(b"\0"):
            found.append(int(entry.name))
    return found


def sweep(tag: str, *, deadline_seconds: float = SWEEP_SECONDS, spare: tuple[int, ...] = ()) -> list[int]:
    """Kill everything tagged but ``spare`` and wait until it is gone. Returns what was still there at the deadline."""
    give_up = time.monotonic() + deadline_seconds
    while left := [pid for pid in tagged(tag) if pid not in spare]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            return left
        time.sleep(0.05)
    return []


def start(tag: str) -> subprocess.Popen[bytes]:
    """The watchdog of this process. Closing its stdin, or dying, lets it sweep; its own session keeps signals to our group away."""
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(Path(__file__)), tag],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={name: value for name, value in os.environ.items() if name != TAG_VARIABLE},
    )


def main() -> None:
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.buffer.read()
    sweep(sys.argv[1])


if __name__ == "__main__":
    main()
