"""What a job's events say of its evaluations and of the doctor's findings. Rows of an evaluation stay in the engine and are asked for."""

from __future__ import annotations

from typing import Any

from portal.jobs import engines
from portal.jobs.live import newest_of
from portal.jobs.models import Job

CHANGES = ("win", "loss", "tie", "invalid")


def summary(job: Job) -> dict[str, Any]:
    """``best`` (None before the first evaluation) and all evaluations, the earliest version first."""
    found = list(job.events.filter(kind="eval").order_by("seq").values("at", "data"))
    evaluations = [
        {
            "version": event["data"]["version"],
            "rows": event["data"]["rows"],
            "reward_mean": event["data"]["reward_mean"],
            "invalid": event["data"]["invalid"],
            "temperature": event["data"]["temperature"],
            "comparison": event["data"].get("comparison"),
            "at": event["at"],
        }
        for event in found
    ]
    return {"best": best(evaluations), "evaluations": evaluations}


def best(evaluations: list[dict[str, Any]]) -> int | None:
    """The version with the highest held-out reward, the earliest of equals; also for jobs of before the engine said so itself."""
    known = [one for one in evaluations if one["reward_mean"] is not None]
    return min(known, key=lambda one: (-one["reward_mean"], one["version"]))["version"] if known else None


def findings(job: Job, *, until_seq: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """``standing``: what the doctor still sees; ``over``: what it saw earlier, with ``over_at``. Each with ``at``.

    ``until_seq``: as it was then.
    """
    standing: dict[str, dict[str, Any]] = {}
    over: list[dict[str, Any]] = []
    for event in newest_of(job, ("finding", "finding_over"), until_seq=until_seq):
        code = event.data["code"]
        if event.kind == "finding":
            standing[code] = {**event.data, "at": event.at}
        elif code in standing:
            over.append({**standing.pop(code), "over_at": event.at})
    return {"standing": list(standing.values()), "over": over}


def rows(job: Job, version: str, *, against: int = 0, change: str = "", offset: int = 0, limit: int = 100) -> dict[str, Any]:
    """A page of an evaluation's rows beside those of ``against``. Raises ``gateway.EngineDown`` and ``gateway.EngineRefused``."""
    return engines.of(job).evaluation(job.public_id, version, against=against, change=change, offset=offset, limit=limit)
