"""Executes its last arguments as another user, or as a container without user namespaces would: a launch prefix for the tests.

python become.py [--uid N] [--container SECCOMP_FILTER_IN_HEX] -- command …
"""

from __future__ import annotations

import ctypes
import os
import sys


def main(words: list[str]) -> None:
    options, command = words[: words.index("--")], words[words.index("--") + 1 :]
    chosen = dict(zip(options[::2], options[1::2], strict=True))
    if uid := chosen.get("--uid"):
        os.setgroups([])
        os.setresgid(*[int(uid)] * 3)
        os.setresuid(*[int(uid)] * 3)
    if code := chosen.get("--container"):
        _filter(bytes.fromhex(code))
    os.execv(command[0], command)


def _filter(code: bytes) -> None:
    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))

    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(code) // 8, code)
    if libc.prctl(38, ctypes.c_ulong(1), 0, 0, 0) or libc.prctl(22, ctypes.c_ulong(2), ctypes.c_ulong(ctypes.addressof(program)), 0, 0):
        raise OSError(ctypes.get_errno(), "the container's filter")


main(sys.argv[1:])
