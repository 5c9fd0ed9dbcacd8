"""Runs side by side: figures over steps, time, tokens or money, what differs in their configuration, what evaluations say."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any
from zlib import crc32

from django.db.models import Sum

from engine.grader_spec import shown
from portal.billing.models import MILLION, SourceType
from portal.jobs import evaluation, series
from portal.jobs.figures import TOKENS
from portal.jobs.models import Job
from portal.jobs.overview import EXACT_STEPS
from tenants.models import Tenant

MOST_JOBS = 8
COLOURS = 8
METRICS = {
    "reward": "Reward",
    "held_out": "Held-out reward",
    "length": "Completion length",
    "entropy": "Entropy",
    "base_kl": "Distance to the base",
    "mismatch_kl": "Mismatch-KL",
    "grad_norm": "Gradient norm",
    "tokens_per_second": "Sampling speed",
}
AXES = {"step": "Step", "seconds": "Time", "tokens": "Tokens", "money": "Money"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One setting that is not the same everywhere; ``values``: of each job, in their order."""

    path: str
    values: list[str]


def chosen(tenant: Tenant, ids: Sequence[str]) -> list[Job]:
    """The tenant's jobs of ``ids``, in that order, at most ``MOST_JOBS``. Others do not exist here."""
    wanted = list(dict.fromkeys(one for one in ids if "\0" not in one))[:MOST_JOBS]
    found = {job.public_id: job for job in tenant.jobs.filter(public_id__in=wanted).select_related("dataset", "reward")}
    return [found[one] for one in wanted if one in found]


def styled(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """A colour of its own that a job keeps in every comparison, and a dash where two of one colour meet."""
    met: dict[int, int] = {}
    styles = []
    for job in jobs:
        colour = crc32(job.public_id.encode()) % COLOURS
        styles.append({"job": job, "colour": colour, "dash": met.setdefault(colour, 0)})
        met[colour] += 1
    return styles


def curves(tenant: Tenant, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Of each job its points: x by axis, y by metric."""
    money = _money(tenant, jobs)
    return [_curve(style, money.get(style["job"].public_id, {})) for style in styled(jobs)]


def differences(jobs: Sequence[Job]) -> list[Difference]:
    """Only what differs: what all have alike says nothing."""
    flat = [dict(_flat(_configuration(job))) for job in jobs]
    paths = dict.fromkeys(path for one in flat for path in one)
    rows = [Difference(path=path, values=[_word(one.get(path)) for one in flat]) for path in paths]
    return [row for row in rows if len(set(row.values)) > 1]


def verdicts(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """What each job's last evaluation says against its version 0, with the interval; one query for each of at most ``MOST_JOBS``."""
    found = []
    for job in jobs:
        told = evaluation.summary(job)
        last = told["evaluations"][-1] if told["evaluations"] else None
        found.append({"job": job, "best": told["best"], "last": last, "comparison": last and last["comparison"]})
    return found


def _curve(style: dict[str, Any], money: dict[int, int]) -> dict[str, Any]:
    job: Job = style["job"]
    parts, _ = series.segments(job, until_seq=job.last_seq, exact_steps=EXACT_STEPS)
    versions = [version for part in parts for version in part["versions"]]
    begin = job.submitted_at.timestamp()
    axes = {
        "step": versions,
        "seconds": [at - begin for part in parts for at in part["at"]],
        "tokens": list(accumulate(tokens for part in parts for tokens in _tokens(part))),
        "money": _money_at(versions, money),
    }
    plain = {name: [value for part in parts for value in _mean(part).get(name, [None] * len(part["versions"]))] for name in METRICS}
    evals = [[one["version"], one["reward_mean"]] for one in evaluation.summary(job)["evaluations"]]
    look = {"id": job.public_id, "name": job.name, "colour": style["colour"], "dash": style["dash"]}
    return {**look, "x": axes, "y": {**plain, "held_out": []}, "evals": evals}


def _mean(part: dict[str, Any]) -> dict[str, list]:
    return part["mean"] if "mean" in part else part["columns"]


def _tokens(part: dict[str, Any]) -> Iterator[float]:
    """Of each point all its tokens: a bucket's mean times its steps."""
    mean, steps = _mean(part), [1] * len(part["versions"])
    if "first" in part:
        steps = [last - first + 1 for first, last in zip(part["first"], part["versions"], strict=True)]
    for i, count in enumerate(steps):
        yield count * sum((mean.get(f"tokens_{kind}") or [None] * len(steps))[i] or 0 for kind in TOKENS)


def _money(tenant: Tenant, jobs: Sequence[Job]) -> dict[str, dict[int, int]]:
    """Micro-units by job and step; one query."""
    wanted = {"source_type": SourceType.JOB, "source__in": [job.public_id for job in jobs]}
    rows = tenant.entries.filter(**wanted).order_by().values_list("source", "step").annotate(total=Sum("amount_micros"))
    found: dict[str, dict[int, int]] = {}
    for source, step, total in rows:
        found.setdefault(source, {})[step] = -total
    return found


def _money_at(versions: Sequence[int], by_step: dict[int, int]) -> list[float]:
    """What all steps up to each version cost, in units of the currency."""
    steps = sorted(by_step)
    sums = list(accumulate(by_step[step] for step in steps))
    return [(sums[place - 1] if (place := bisect_right(steps, version)) else 0) / MILLION for version in versions]


def _configuration(job: Job) -> dict[str, Any]:
    spec = {key: value for key, value in job.spec.items() if key not in ("dataset", "grader")}
    return {"dataset": job.dataset.name, "dataset version": job.spec["dataset"]["version"], "reward": shown(job.spec["grader"]), **spec}


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, inner in value.items():
        yield from _flat(inner, f"{path}.{key}" if path else key)


def _word(value: Any) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
