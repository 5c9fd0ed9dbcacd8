"""The ways in which the runner is started for the tests: as root and as an ordinary user, with and without namespaces."""

from __future__ import annotations

import os
import platform
import shutil
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from engine.rewards.sandbox import Launch, SandboxSettings
from engine.rewards.sandbox.bpf import AUDIT_ARCH

ROOT = Path(__file__).resolve().parents[4]
BECOME = Path(__file__).with_name("become.py")
ORDINARY_UID = 54_321
_UNSHARE, _CLONE3 = {"x86_64": (272, 435), "aarch64": (97, 435)}[platform.machine()]
AS_ROOT = os.geteuid() == 0


@dataclass(frozen=True, kw_only=True)
class Regime:
    """``tier``: what is asked for. ``expected``: the tier that it must reach, where this machine can."""

    name: str
    tier: str
    expected: str
    ordinary_user: bool = False
    container: bool = False

    @property
    def own_uid(self) -> bool:
        return AS_ROOT and not self.ordinary_user

    def settings(self) -> SandboxSettings:
        return SandboxSettings(tier=self.tier, memory_bytes=256 * 2**20, spares=2, max_workers=32)

    def launch(self, folder: Path) -> Launch:
        """``folder``: readable by everybody."""
        words = ["--uid", str(ORDINARY_UID)] if self.ordinary_user and AS_ROOT else []
        words += ["--container", _without_namespaces().hex()] if self.container else []
        if not words:
            return Launch()
        prefix = (sys.executable, str(BECOME), *words, "--")
        if self.ordinary_user and AS_ROOT:
            return Launch(prefix=prefix, python=python_for_everybody(), root=_copy_for_everybody(folder))
        return Launch(prefix=prefix)


REGIMES = [
    Regime(name="bwrap-as-root", tier="bwrap", expected="bwrap"),
    Regime(name="bwrap-as-user", tier="bwrap", expected="bwrap", ordinary_user=True),
    Regime(name="plain-other-uid", tier="plain", expected="plain"),
    Regime(name="plain-same-uid", tier="plain", expected="plain", ordinary_user=True),
    Regime(name="container", tier="auto", expected="plain", ordinary_user=True, container=True),
]


def python_for_everybody() -> str:
    """An interpreter that an ordinary user can run: ours, or the system's."""
    names = (sys.executable, f"/usr/bin/python3.{sys.version_info[1]}", "/usr/bin/python3")
    usable = [name for name in names if os.path.exists(name) and _open_to_everybody(Path(os.path.realpath(name)))]
    if not usable:
        raise RuntimeError(f"no interpreter here that an ordinary user can run (tried {', '.join(names)}); install Debian's python3")
    return usable[0]


def _open_to_everybody(path: Path) -> bool:
    return all(part.stat().st_mode & 0o005 == 0o005 for part in (path, *path.parents))


def _copy_for_everybody(folder: Path) -> Path:
    """The checkout may lie where only its owner can read it."""
    target = folder / "checkout"
    if not target.exists():
        shutil.copytree(ROOT / "engine" / "rewards", target / "engine" / "rewards", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "engine" / "__init__.py", target / "engine" / "__init__.py")
        for path in (target, *target.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def _without_namespaces() -> bytes:
    """What container runtimes do: no new namespaces, by unshare or by clone."""
    deny, allow, kill = 0x0005_0001, 0x7FFF_0000, 0x8000_0000
    clone = 56 if platform.machine() == "x86_64" else 220
    lines = [
        *((0x20, 0, 0, 4), (0x15, 1, 0, AUDIT_ARCH[platform.machine()]), (0x06, 0, 0, kill), (0x20, 0, 0, 0)),
        *((0x15, 0, 1, _UNSHARE), (0x06, 0, 0, deny)),
        *((0x15, 0, 1, _CLONE3), (0x06, 0, 0, 0x0005_0000 | 38)),
        # clone: the flags are the first argument; any CLONE_NEW… bit is refused.
        *((0x15, 0, 3, clone), (0x20, 0, 0, 16), (0x45, 0, 1, 0x7E02_0000), (0x06, 0, 0, deny)),
        (0x06, 0, 0, allow),
    ]
    return b"".join(struct.pack("<HBBI", *line) for line in lines)
