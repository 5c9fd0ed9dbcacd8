"""The walls around tenants' code, tried once when the engine starts: what it then shows, and whether it may serve in production at all.

Tried on the machine that starts the engine. Rollout workers on others try theirs again with the first reward that needs them, and refuse
to run code below the same tier.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from engine.rewards.sandbox import SandboxSettings, Strength, TooWeak, prove
from engine.runtime.readiness import StartFailed
from engine.settings import EngineSettings

logger = logging.getLogger(__name__)

GOOD_ENOUGH = ("bwrap", "plain")
NONE = "none"
_FIX = (
    "MARLAAS_PRODUCTION=1 needs Landlock and seccomp: Linux 5.13 or later with `landlock` in /sys/kernel/security/lsm, on x86-64 or "
    "aarch64, and MARLAAS_REWARD_SANDBOX at auto, plain or bwrap. `python -m engine.rewards bench` shows what a machine holds."
)

Prove = Callable[[SandboxSettings], Awaitable[Strength]]


async def strength_at_start(settings: EngineSettings, prove: Prove = prove) -> dict[str, Any]:
    """The fields of ``Strength``, or ``{"tier": "none", "refused": {…}}`` where no code can run: such rewards are then refused.

    Raises ``StartFailed`` in production below ``plain``.
    """
    try:
        strength = await prove(SandboxSettings(tier=settings.reward_sandbox))
    except (TooWeak, OSError) as error:
        logger.error("%s", error)
        found: dict[str, Any] = {"tier": NONE, "refused": {settings.reward_sandbox: str(error)}}
    else:
        logger.info("%s", strength)
        found = strength.as_dict()
    if settings.production and found["tier"] not in GOOD_ENOUGH:
        reasons = "; ".join(found["refused"].values()) or f"MARLAAS_REWARD_SANDBOX={settings.reward_sandbox} asks for less"
        raise StartFailed(f"the reward sandbox is too weak for production: {reasons} {_FIX}")
    return found
