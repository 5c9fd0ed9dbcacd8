"""The template process: loads the libraries once, then forks a child for each worker that the runner asks for. Never runs foreign code.

It talks to the runner over one SOCK_SEQPACKET socket, a JSON object per packet:

    runner → {"setup": {...}}                      → {"ready": {"missing": [names], "address_space_bytes": n}}
    runner → {"spawn": id, "walls": {...}} + fds   → {"spawned": id} + pidfd, and later {"ended": id, "status": exit code or -signal}

Its end is the end of its children (they ask the kernel for that), and the end of the socket is its own.
"""

from __future__ import annotations

import base64
import gc
import importlib
import json
import os
import resource
import selectors
import socket
import sys

from . import child, library, lockdown

_PACKET_BYTES = 64 * 1024
_LOG, _REQUESTS, _REPLIES = range(3)


def main(control_fd: int, parent_pid: int) -> None:
    lockdown.die_with(parent_pid)
    control = socket.socket(fileno=control_fd)
    setup = json.loads(control.recv(_PACKET_BYTES))["setup"]
    finder, missing = _prepare(setup)
    gc.collect()
    gc.freeze()
    _send(control, {"ready": {"missing": missing, "address_space_bytes": _address_space_bytes()}})
    _Forker(control, finder).serve()


def _prepare(setup: dict) -> tuple[library.Library, list[str]]:
    """``setup``: ``standard`` and ``site`` (folders), ``preload`` (module names). Returns the finder and the names that are not here."""
    sys.path[:] = [*setup["standard"], *setup["site"]]
    missing = []
    for name in setup["preload"]:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    for folder in setup["standard"]:
        library.import_extensions(folder, "")
    packages = library.packages_in(setup["site"])
    for folder, name in packages:
        library.import_extensions(folder, name)
    if "math_verify" in sys.modules:
        _warm_up_math_verify()
    return library.Library([*((folder, "") for folder in setup["standard"]), *packages]), missing


def _warm_up_math_verify() -> None:
    """The first comparison builds most of its tables and imports more of sympy."""
    from math_verify import parse, verify

    verify(parse(r"$\frac{1}{2}$"), parse("$0.5$"))


class _Forker:
    def __init__(self, control: socket.socket, finder: library.Library):
        self._control, self._finder = control, finder
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)
        self._pid = os.getpid()
        self._nothing = os.open(os.devnull, os.O_RDONLY)

    def serve(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.data is None:
                    self._request()
                else:
                    self._reap(key.fd, *key.data)

    def _request(self) -> None:
        packet, fds, _, _ = socket.recv_fds(self._control, _PACKET_BYTES, 3)
        if not packet:
            os._exit(0)
        request = json.loads(packet)
        walls = request["walls"]
        walls["bpf"] = base64.b64decode(walls["bpf"]) if walls["bpf"] else None
        pid = os.fork()
        if pid == 0:
            descriptors = {0: self._nothing, 1: fds[_LOG], 2: fds[_LOG], 3: fds[_REQUESTS], 4: fds[_REPLIES]}
            child.become(descriptors, {**walls, "parent_pid": self._pid}, self._finder)
        for fd in fds:
            os.close(fd)
        pidfd = os.pidfd_open(pid)
        self._selector.register(pidfd, selectors.EVENT_READ, (pid, request["spawn"]))
        socket.send_fds(self._control, [json.dumps({"spawned": request["spawn"]}).encode()], [pidfd])

    def _reap(self, pidfd: int, pid: int, name: int) -> None:
        self._selector.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        _send(self._control, {"ended": name, "status": os.waitstatus_to_exitcode(status)})


def _send(control: socket.socket, message: dict) -> None:
    try:
        control.send(json.dumps(message).encode())
    except OSError:
        os._exit(0)


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
