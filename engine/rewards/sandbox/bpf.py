"""The seccomp filter, assembled on the host as classic BPF for x86-64 and aarch64: an allow-list, and everything else is refused.

A call on the list is allowed, a few only with harmless arguments. Nothing on it takes a path, opens a descriptor, makes a process or
thread, or speaks to another process. What no honest program here ever calls (ptrace, io_uring, bpf …) ends the process; so do the
x32 and foreign-architecture doors around the list. The rest answers EPERM, which Python turns into a ``PermissionError``.

Layouts: ``struct seccomp_data`` is {int nr, u32 arch, u64 ip, u64 args[6]}; an instruction is {u16 code, u8 jt, u8 jf, u32 k}.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32_BIT = 0x4000_0000

KILL = 0x8000_0000
ALLOW = 0x7FFF_0000
DENY = 0x0005_0000 | errno.EPERM

_NR, _ARCH = 0, 4
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06

# name: (x86-64, aarch64); None where the architecture has no such call.
ALLOWED: Mapping[str, tuple[int | None, int | None]] = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "munmap": (11, 215),
    "brk": (12, 214),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
    "restart_syscall": (219, 128),
    "setitimer": (38, 103),
    "getitimer": (36, 102),
    "alarm": (37, None),
    "nanosleep": (35, 101),
    "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "gettimeofday": (96, 169),
    "time": (201, None),
    "times": (100, 153),
    "getrusage": (98, 165),
    "sched_yield": (24, 124),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "exit": (60, 93),
    "exit_group": (231, 94),
}
FATAL: Mapping[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "io_submit": (209, 2),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "mount_setattr": (442, 442),
    "setns": (308, 268),
    "unshare": (272, 97),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "seccomp": (317, 277),
    "memfd_secret": (447, 447),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "iopl": (172, None),
    "ioperm": (173, None),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
}
_MMAP, _MPROTECT, _FUTEX = (9, 222), (10, 226), (202, 98)
_PROT_EXEC = 4
# Waiting and waking only, private or not, on either clock: the rest of futex has a history of kernel bugs and no use in one thread.
_FUTEX_OPTIONS, _FUTEX_PLAIN = 128 | 256, (0, 1, 9, 10)


def build(machine: str) -> bytes:
    """The filter for ``machine`` (``platform.machine()``). Raises ``KeyError`` for an architecture that is not known here."""
    arch = AUDIT_ARCH[machine]
    column = list(AUDIT_ARCH).index(machine)
    program = _Program()
    program.load(_ARCH)
    program.unless_equal(arch, KILL)
    program.load(_NR)
    if machine == "x86_64":
        program.if_at_least(_X32_BIT, KILL)
    for numbers in ALLOWED.values():
        program.if_equal(numbers[column], ALLOW)
    for numbers in FATAL.values():
        program.if_equal(numbers[column], KILL)
    for numbers in (_MMAP, _MPROTECT):
        program.arguments(numbers[column], _no_new_code())
    program.arguments(_FUTEX[column], _plain_futex())
    program.answer(DENY)
    return program.code()


def _no_new_code() -> _Program:
    """mmap and mprotect take their protection as the third argument; memory that may be executed is not to be had."""
    body = _Program()
    body.load(_argument(2))
    body.if_any_bit(_PROT_EXEC, DENY)
    body.answer(ALLOW)
    return body


def _plain_futex() -> _Program:
    body = _Program()
    body.load(_argument(1))
    body.mask(0xFFFF_FFFF & ~_FUTEX_OPTIONS)
    for operation in _FUTEX_PLAIN:
        body.if_equal(operation, ALLOW)
    body.answer(DENY)
    return body


def _argument(index: int) -> int:
    """Offset of an argument's lower half; both architectures are little-endian, and each argument checked here is an int."""
    return 16 + 8 * index


class _Program:
    def __init__(self) -> None:
        self._lines: list[tuple[int, int, int, int]] = []

    def load(self, offset: int) -> None:
        self._lines.append((_LOAD, 0, 0, offset))

    def mask(self, bits: int) -> None:
        self._lines.append((_AND, 0, 0, bits))

    def answer(self, action: int) -> None:
        self._lines.append((_RETURN, 0, 0, action))

    def if_equal(self, value: int | None, action: int) -> None:
        if value is not None:
            self._lines.append((_EQUAL, 0, 1, value))
            self.answer(action)

    def unless_equal(self, value: int, action: int) -> None:
        self._lines.append((_EQUAL, 1, 0, value))
        self.answer(action)

    def if_at_least(self, value: int, action: int) -> None:
        self._lines.append((_AT_LEAST, 0, 1, value))
        self.answer(action)

    def if_any_bit(self, bits: int, action: int) -> None:
        self._lines.append((_ANY_BIT, 0, 1, bits))
        self.answer(action)

    def arguments(self, number: int, body: _Program) -> None:
        """For this call, ``body`` decides; it must answer on every path."""
        self._lines.append((_EQUAL, 0, len(body._lines), number))
        self._lines.extend(body._lines)

    def code(self) -> bytes:
        return b"".join(struct.pack("<HBBI", *line) for line in self._lines)
