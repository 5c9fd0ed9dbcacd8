"""The walls that a child of the template puts around itself before it sees a byte of a tenant's. None of them can be taken down again.

In order: another user where the template is root, no capabilities, rlimits, death with the template, no ptrace by peers, no new
privileges, Landlock without a single rule (no file, no TCP port, no abstract socket, no signal to others), and the seccomp filter.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 4, 22, 38, 47
_PR_CAP_AMBIENT_CLEAR_ALL, _SECCOMP_MODE_FILTER = 4, 2
_CAPABILITY_VERSION_3 = 0x20080522
_LANDLOCK_CREATE_RULESET, _LANDLOCK_RESTRICT_SELF, _LANDLOCK_VERSION = 444, 446, 1
# Access rights by the interface version that brought them; a ruleset may only name what the kernel knows.
_FS_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}
_NET_RIGHTS, _SCOPES = 0b11, 0b11
# A hostile loop gets about a third of a core that the engine also wants; more courtesy would let honest rewards run out of time.
_NICE = 3
STACK_BYTES = 8 * 2**20
# Standard input, output and errors, requests, replies.
DESCRIPTORS = 5

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def lock(*, uid: int | None, memory_bytes: int, bpf: bytes | None, landlock: bool, parent_pid: int) -> dict:
    """Put all walls up; returns what stands. ``bpf`` None and ``landlock`` False leave that wall out. Raises ``OSError``.

    ``memory_bytes``: address space on top of what the template's libraries already take.
    """
    _first_to_go_when_memory_ends()
    os.nice(_NICE)
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    _drop_capabilities()
    _limit(memory_bytes)
    die_with(parent_pid)
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    version = _landlock() if landlock else 0
    # Only now: Landlock itself needs a descriptor.
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    if bpf is not None:
        program = _Program(len(bpf) // 8, bpf)
        _prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.addressof(program))
    return {"landlock": version, "seccomp": bpf is not None, "own_uid": uid is not None}


def _first_to_go_when_memory_ends() -> None:
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        # Where /proc does not allow it, the address space limit is what counts.
        pass


def _drop_capabilities() -> None:
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = ctypes.create_string_buffer(struct.pack("<Ii", _CAPABILITY_VERSION_3, 0))
    nothing = ctypes.create_string_buffer(24)
    if _libc.capset(header, nothing) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _limit(memory_bytes: int) -> None:
    limits = {
        resource.RLIMIT_AS: _address_space_bytes() + memory_bytes,
        resource.RLIMIT_STACK: STACK_BYTES,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_MSGQUEUE: 0,
    }
    for which, value in limits.items():
        resource.setrlimit(which, (value, value))


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def die_with(parent_pid: int) -> None:
    """SIGKILL for this process when its parent ends. ``parent_pid`` 0: not known, in a namespace of its own."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent_pid and os.getppid() != parent_pid:
        # The parent ended before the line above.
        os._exit(1)


def _landlock() -> int:
    """Forbid everything that this kernel's Landlock can forbid; returns its interface version, 0 where there is none."""
    version = _libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_LANDLOCK_VERSION))
    if version < 1:
        return 0
    rights = [sum(bits for since, bits in _FS_RIGHTS.items() if version >= since)]
    rights += [_NET_RIGHTS] if version >= 4 else []
    rights += [_SCOPES] if version >= 6 else []
    attributes = struct.pack(f"<{len(rights)}Q", *rights)
    ruleset = _libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint32(0))
    if ruleset < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    if _libc.syscall(_LANDLOCK_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
    os.close(ruleset)
    return version


def _prctl(option: int, value: int, more: int = 0) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(more), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
