"""What the walls really hold, tried from behind them before any tenant's code comes near: asked of the kernel, not of settings."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Callable

_PROT_READ_WRITE_EXEC, _PRIVATE_ANONYMOUS = 7, 0x22


def attempts() -> list[str]:
    """The names of the attempts that succeeded; none should."""
    return [name for name, attempt in _ATTEMPTS.items() if _succeeds(attempt)]


def _succeeds(attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (OSError, RuntimeError):
        return False
    return True


def _fork() -> None:
    if os.fork() == 0:
        os._exit(0)


def _executable_memory() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    address = libc.mmap(None, ctypes.c_size_t(4096), _PROT_READ_WRITE_EXEC, _PRIVATE_ANONYMOUS, -1, ctypes.c_long(0))
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")


_ATTEMPTS: dict[str, Callable[[], object]] = {
    "read a file": lambda: os.open("/", os.O_RDONLY),
    "write a file": lambda: os.open(f"/tmp/.marlaas-probe-{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_EXCL),
    "look for a file": lambda: os.stat("/"),
    "open a socket": lambda: socket.socket(socket.AF_INET),
    "open a local socket": lambda: socket.socket(socket.AF_UNIX),
    "fork": _fork,
    "signal another process": lambda: os.kill(1, 0),
    "make memory executable": _executable_memory,
}
