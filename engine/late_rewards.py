"""Tells a job, while its rollout is under way, that the calls of its reward end at their deadline: else it stands in one step for minutes
and says nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from engine.checkup import MOST_INVALID
from engine.driver import Driver
from engine.history import JobHistory
from engine.ports import PortError, RolloutPort

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

CODE = "reward_late"
LOOK_SECONDS = 5.0


class LateRewards:
    """``look_seconds``: how often a rollout under way is looked at; ``stats_seconds``: how long the sampler may take to answer."""

    def __init__(self, driver: Driver, rollout: RolloutPort, *, stats_seconds: float, look_seconds: float = LOOK_SECONDS):
        self._driver, self._rollout = driver, rollout
        self._stats_seconds, self._look_seconds = stats_seconds, look_seconds

    async def beside(self, work: Coroutine[Any, Any, Answer], job: JobHistory, version: int) -> Answer:
        """``work``'s answer; meanwhile the job's gradings are looked at. A look that fails costs the work nothing."""
        looking = asyncio.create_task(self._look(job, version), name=f"{job.job}:late rewards")
        try:
            return await work
        finally:
            looking.cancel()

    async def _look(self, job: JobHistory, version: int) -> None:
        """Said with the first late call, and again whenever there are twice as many."""
        said = 0
        while True:
            await asyncio.sleep(self._look_seconds)
            found = await self._found(job.job)
            if found is not None and found["late"] >= max(1, 2 * said):
                said = found["late"]
                self._driver.say(job.job, "warning", warning(found, version))

    async def _found(self, job: str) -> dict[str, Any] | None:
        try:
            stats = await self._driver.call(self._rollout.stats(), seconds=self._stats_seconds, what="the sampler's counters")
        except PortError as error:  # a busy or dying sampler; whoever waits for its work says so
            logger.warning("whether rewards are late is not to be had: %s", error)
            return None
        except Exception:
            logger.exception("whether rewards are late is not to be had")
            return None
        return stats.get("gradings", {}).get(job)


def warning(found: dict[str, Any], version: int) -> dict[str, Any]:
    """The ``warning`` event's data. ``found``: of ``rollout.late``; ``version``: that is being sampled from."""
    late, graded, completions = found["late"], found["graded"], found["completions"]
    message = f"The reward is late: {late} of the {graded} gradings so far, of {completions} in this step, ended at their deadline"
    advice = (
        "They are left out of the step, and each costs it its whole deadline. With more than "
        f"{MOST_INVALID:.0%} of them the job pauses after the step. Stop it and try the reward in the Reward Lab if it should be quick."
    )
    return {
        "code": CODE,
        "message": f"{message} ({found['reason']})" if found["reason"] else message,
        "advice": advice,
        "version": version,
        "late": late,
        "graded": graded,
        "completions": completions,
    }
