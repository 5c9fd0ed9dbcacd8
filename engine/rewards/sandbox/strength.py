"""How strong the walls are on this machine: each tier is tried for real, from behind the walls, and the best one that holds is taken."""

from __future__ import annotations

import logging
import os
import platform
from dataclasses import asdict, dataclass
from typing import Any, Literal

from engine.rewards.sandbox import bpf, bubblewrap
from engine.rewards.sandbox.frames import Forged, encode
from engine.rewards.sandbox.nursery import CannotSpawn, Nursery, Walls
from engine.rewards.sandbox.verdicts import MEMORY_BYTES
from engine.rewards.sandbox.worker import Late, Lost

log = logging.getLogger(__name__)

Tier = Literal["bwrap", "plain", "weak"]
Wanted = Literal["auto", "bwrap", "plain", "weak"]
# Ranges that no account has. The second one fits where a container maps no more than 65,536 users.
_FIRST_UIDS = (1_900_000_000, 62_000)
_PROBE_SECONDS = 10.0


class TooWeak(Exception):
    """This machine cannot hold the required walls; the words say what is missing and how to mend it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxSettings:
    """``tier``: ``auto`` takes the best of ``bwrap`` and ``plain`` and refuses anything below; ``weak`` must be asked for by name.

    ``spares``: workers kept ready. ``max_workers``: processes at once; each may take ``memory_bytes``.
    """

    tier: Wanted = "auto"
    memory_bytes: int = MEMORY_BYTES
    spares: int = 2
    max_workers: int = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Strength:
    """``tier``: ``bwrap`` = namespaces + Landlock + seccomp, ``plain`` = Landlock + seccomp, ``weak`` = less: not for strangers' code.

    ``landlock``: the kernel's interface version, 0 without. ``own_uid``: each worker is a user of its own. ``refused``: why the stronger
    tiers are not there. ``missing``: libraries that rewards may import elsewhere and not here.
    """

    tier: Tier
    landlock: int
    seccomp: bool
    own_uid: bool
    refused: dict[str, str]
    missing: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "missing": list(self.missing)}

    def __str__(self) -> str:
        walls = [name for name, stands in (("namespaces", self.tier == "bwrap"), ("seccomp", self.seccomp)) if stands]
        walls += [f"Landlock {self.landlock}"] if self.landlock else []
        walls += ["a user per worker"] if self.own_uid else []
        refused = "".join(f"; no {tier}: {why}" for tier, why in self.refused.items())
        missing = f"; not importable here: {', '.join(self.missing)}" if self.missing else ""
        return f"reward sandbox: tier {self.tier} ({', '.join(walls) or 'no walls'}){refused}{missing}"


async def open_nursery(settings: SandboxSettings) -> tuple[Nursery, Strength]:
    """The nursery of the best tier that ``settings`` allow, started and proven. Raises ``TooWeak``."""
    refused: dict[str, str] = {}
    for tier in ("bwrap", "plain") if settings.tier == "auto" else (settings.tier,):
        for walls in _candidates(tier, settings, refused):
            nursery = Nursery(walls, spares=settings.spares)
            try:
                return nursery, await _prove(nursery, tier, refused)
            except CannotSpawn as error:
                refused[tier] = str(error)
                await nursery.close()
            except BaseException:
                await nursery.close()
                raise
    reasons = "; ".join(f"{tier}: {why}" for tier, why in refused.items())
    raise TooWeak(f"the reward sandbox cannot hold tenants' code here ({reasons}). {_ADVICE}")


_ADVICE = (
    "It needs Linux 5.13 or later with Landlock and seccomp, on x86-64 or aarch64. On a machine where only your own rewards run, "
    "MARLAAS_REWARD_SANDBOX=weak starts without these walls."
)


def _candidates(tier: Tier, settings: SandboxSettings, refused: dict[str, str]) -> list[Walls]:
    """Strongest first: with a user per worker where we are root."""
    machine = platform.machine()
    if tier != "weak" and machine not in bpf.AUDIT_ARCH:
        refused[tier] = f"there is no seccomp filter for {machine}"
        return []
    if tier == "bwrap" and bubblewrap.program() is None:
        refused[tier] = "bubblewrap is not installed"
        return []
    program = None if tier == "weak" and not _seccomp_is_there() else bpf.build(machine)
    uids = [*_FIRST_UIDS, None] if os.geteuid() == 0 else [None]
    return [
        Walls(bubblewrap=tier == "bwrap", landlock=True, bpf=program, first_uid=uid, memory_bytes=settings.memory_bytes) for uid in uids
    ]


def _seccomp_is_there() -> bool:
    return platform.machine() in bpf.AUDIT_ARCH and os.path.exists("/proc/sys/kernel/seccomp")


async def _prove(nursery: Nursery, tier: Tier, refused: dict[str, str]) -> Strength:
    report = await nursery.start()
    if tier != "weak":
        if not report["landlock"]:
            raise CannotSpawn("this kernel has no Landlock, or it is switched off")
        if through := await _probe(nursery):
            raise CannotSpawn(f"from behind the walls it was possible to {', '.join(through)}")
    return Strength(
        tier=tier,
        landlock=report["landlock"],
        seccomp=report["seccomp"],
        own_uid=report["own_uid"],
        refused=dict(refused),
        missing=nursery.missing,
    )


async def _probe(nursery: Nursery) -> list[str]:
    """What a worker could do and should not. No tenant's code has run yet: its words can be believed."""
    worker = await nursery.take()
    reply: dict[str, Any] = {}
    try:
        await worker.exchange(encode({"op": "probe"}), reply.update, seconds=_PROBE_SECONDS)
    except (Late, Lost, Forged) as error:
        raise CannotSpawn(f"the probe of the walls did not come back: {type(error).__name__} {error}") from error
    finally:
        await worker.kill()
    return reply["succeeded"]
