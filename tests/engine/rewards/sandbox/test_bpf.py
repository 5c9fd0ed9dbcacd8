"""The seccomp filter, run here instruction by instruction for both architectures."""

from __future__ import annotations

import struct

import pytest

from engine.rewards.sandbox import bpf

X86, ARM = "x86_64", "aarch64"


def judge(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """The action of ``machine``'s filter for a call: a small interpreter of classic BPF."""
    code = bpf.build(machine)
    lines = [struct.unpack_from("<HBBI", code, at) for at in range(0, len(code), 8)]
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<iIQ6Q", number if number < 2**31 else number - 2**32, arch or bpf.AUDIT_ARCH[machine], 0, *padded)
    at = accumulator = 0
    while True:
        operation, true, false, value = lines[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += true if holds else false


@pytest.mark.parametrize(
    ("machine", "number", "action"),
    [
        *((X86, number, bpf.ALLOW) for number in (0, 1, 3, 11, 12, 15, 60, 231, 318)),
        *((ARM, number, bpf.ALLOW) for number in (63, 64, 57, 215, 214, 139, 93, 94, 278)),
        *((X86, number, bpf.DENY) for number in (2, 257, 41, 56, 57, 59, 62, 72, 86, 302, 319, 435, 600)),
        *((ARM, number, bpf.DENY) for number in (56, 198, 220, 221, 129, 25, 37, 261, 279, 435, 600)),
        *((X86, number, bpf.KILL) for number in (101, 310, 321, 425, 272, 165, 323)),
        *((ARM, number, bpf.KILL) for number in (117, 270, 280, 425, 97, 40, 282)),
    ],
)
def test_a_call_is_allowed_denied_or_fatal(machine, number, action):
    assert judge(machine, number) == action


@pytest.mark.parametrize("machine", [X86, ARM])
def test_a_call_of_another_architecture_ends_the_process(machine):
    assert judge(machine, 0, arch=0x40000003) == bpf.KILL


@pytest.mark.parametrize("number", [0, 1, 39, 520])
def test_the_x32_door_ends_the_process(number):
    assert judge(X86, 0x4000_0000 | number) == bpf.KILL


def test_a_negative_number_ends_the_process_too():
    assert judge(X86, 0xFFFF_FFFF) == bpf.KILL


@pytest.mark.parametrize(("machine", "mmap", "mprotect"), [(X86, 9, 10), (ARM, 222, 226)])
@pytest.mark.parametrize(("protection", "action"), [(0, bpf.ALLOW), (3, bpf.ALLOW), (4, bpf.DENY), (7, bpf.DENY), (2**32 | 5, bpf.DENY)])
def test_nothing_becomes_executable(machine, mmap, mprotect, protection, action):
    assert judge(machine, mmap, 0, 4096, protection) == action
    assert judge(machine, mprotect, 0, 4096, protection) == action


@pytest.mark.parametrize(("machine", "futex"), [(X86, 202), (ARM, 98)])
@pytest.mark.parametrize(
    ("operation", "action"), [(0, bpf.ALLOW), (129, bpf.ALLOW), (0x189, bpf.ALLOW), (3, bpf.DENY), (6, bpf.DENY), (12, bpf.DENY)]
)
def test_futex_only_waits_and_wakes(machine, futex, operation, action):
    assert judge(machine, futex, 0, operation) == action


def test_no_list_names_a_call_twice():
    for column in (0, 1):
        numbers = [
            n[column] for n in (*bpf.ALLOWED.values(), *bpf.FATAL.values(), bpf._MMAP, bpf._MPROTECT, bpf._FUTEX) if n[column] is not None
        ]
        assert len(numbers) == len(set(numbers))
