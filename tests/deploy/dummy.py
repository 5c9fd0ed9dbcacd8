"""A stand-in for a part of the product. It calls a Unix socket, says its name, and lives until told otherwise.

Usage: dummy.py SOCKET NAME [stay|stubborn|family]. A byte on the socket makes it exit with that number; its death closes the socket.
``stubborn`` ignores SIGTERM; ``family`` also leaves a daemonised grandchild that ignores SIGTERM and calls itself NAME-orphan.
"""

from __future__ import annotations

import os
import signal
import socket
import sys


def call(address: str, name: str) -> socket.socket:
    line = socket.socket(socket.AF_UNIX)
    line.connect(address)
    line.sendall(f"{name}\n".encode())
    return line


def main(address: str, name: str, manner: str = "stay") -> None:
    if manner == "family" and os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        name, manner = f"{name}-orphan", "stubborn"
    if manner == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    line = call(address, name)
    print(f"{name} is up", flush=True)
    order = line.recv(1)
    sys.exit(order[0] if order else 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
