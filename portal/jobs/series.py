"""A job's figures over its steps: exact, or for long runs in buckets of ``BUCKET`` with mean, least and greatest: no spike is lost.

Every ``CHUNK`` steps their figures are kept as one row, written by the ingester; the steps since are read from their events. A chunk
that is missing (a job of before there were chunks) costs time, never a point.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from portal.jobs.figures import TOKENS, figures
from portal.jobs.models import Job, JobEvent, StepChunk

CHUNK = 256
BUCKET = 16
Series = dict[str, Any]


def keep(job: Job, before_version: int) -> None:
    """Keep every chunk that is full now. Call in the transaction that stored the steps after ``before_version``."""
    if job.version // CHUNK == before_version // CHUNK:
        return
    last = StepChunk.objects.filter(job=job).order_by("-number").values("number", "last_seq").first()
    number, seq = (last["number"] + 1, last["last_seq"]) if last else (0, 0)
    steps = list(_steps(job, after_seq=seq))
    for start in range(0, len(steps) - CHUNK + 1, CHUNK):
        part = steps[start : start + CHUNK]
        exact = columns(part)
        tokens = {kind: int(sum(filter(None, exact["columns"][f"tokens_{kind}"]))) for kind in TOKENS}
        StepChunk.objects.create(
            tenant_id=job.tenant_id,
            job=job,
            number=number + start // CHUNK,
            first_version=part[0]["data"]["version"],
            last_version=part[-1]["data"]["version"],
            last_seq=part[-1]["seq"],
            exact=exact,
            coarse=bucketed(exact),
            tokens=tokens,
        )


def exact(job: Job, first: int, last: int) -> Series:
    """The figures of versions ``first`` to ``last``, both included, one point per step."""
    chunks = list(StepChunk.objects.filter(job=job, last_version__gte=first, first_version__lte=last).order_by("number"))
    kept = StepChunk.objects.filter(job=job).order_by("-number").values("last_version", "last_seq").first()
    rest = [] if kept and last <= kept["last_version"] else _steps(job, after_seq=kept["last_seq"] if kept else 0)
    whole = joined([*(chunk.exact for chunk in chunks), columns(rest)])
    inside = [i for i, version in enumerate(whole["versions"]) if first <= version <= last]
    return _picked(whole, inside)


def segments(job: Job, *, until_seq: int, exact_steps: int) -> tuple[list[Series], dict[str, int]]:
    """([coarse and] exact points of the steps reported up to ``until_seq``, their tokens by kind). Coarse only beyond ``exact_steps``."""
    coarse: list[StepChunk] = []
    chunks = StepChunk.objects.filter(job=job, last_seq__lte=until_seq).order_by("number")
    if job.version > exact_steps:
        coarse = list(chunks.defer("exact"))
    kept = [] if coarse else list(chunks)
    known = coarse or kept
    rest = columns(_steps(job, after_seq=known[-1].last_seq if known else 0, until_seq=until_seq))
    tokens = {kind: sum(chunk.tokens[kind] for chunk in known) + _sum(rest, f"tokens_{kind}") for kind in TOKENS}
    points = joined([*(chunk.exact for chunk in kept), rest])
    return [*([joined_coarse([chunk.coarse for chunk in coarse])] if coarse else []), points], tokens


def columns(steps: Iterable[dict[str, Any]]) -> Series:
    """``steps``: {seq, at, data} of step events, in order."""
    rows = [(step["data"].get("version"), step["at"].timestamp(), step["data"].get("skipped"), figures(step["data"])) for step in steps]
    names = list(dict.fromkeys(name for *_, found in rows for name in found))
    return {
        "versions": [version for version, *_ in rows],
        "at": [at for _, at, *_ in rows],
        "skipped": [skipped for _, _, skipped, _ in rows],
        "columns": {name: [found.get(name) for *_, found in rows] for name in names},
    }


def bucketed(series: Series, size: int = BUCKET) -> Series:
    """Mean, least and greatest of every ``size`` points. ``broken``: how many were no finite step; ``first``: the first version of each."""
    starts = range(0, len(series["versions"]), size)
    parts = {name: [_bucket(values[start : start + size]) for start in starts] for name, values in series["columns"].items()}
    return {
        "first": [series["versions"][start] for start in starts],
        "versions": [series["versions"][start : start + size][-1] for start in starts],
        "at": [series["at"][start : start + size][-1] for start in starts],
        "broken": [series["skipped"][start : start + size].count("nonfinite") for start in starts],
        **{
            key: {name: [bucket[position] for bucket in buckets] for name, buckets in parts.items()}
            for position, key in enumerate(("mean", "low", "high"))
        },
    }


def joined(parts: list[Series]) -> Series:
    """One after another; a figure that a part lacks is None there."""
    plain = {key: [value for part in parts for value in part[key]] for key in ("versions", "at", "skipped")}
    return {**plain, "columns": _together([(part["columns"], len(part["versions"])) for part in parts])}


def joined_coarse(parts: list[Series]) -> Series:
    plain = {key: [value for part in parts for value in part[key]] for key in ("first", "versions", "at", "broken")}
    return plain | {key: _together([(part[key], len(part["versions"])) for part in parts]) for key in ("mean", "low", "high")}


def _together(parts: list[tuple[dict[str, list], int]]) -> dict[str, list]:
    names = dict.fromkeys(name for found, _ in parts for name in found)
    return {name: [value for found, size in parts for value in found.get(name, [None] * size)] for name in names}


def _picked(series: Series, places: list[int]) -> Series:
    plain = {key: [series[key][i] for i in places] for key in ("versions", "at", "skipped")}
    return {**plain, "columns": {name: [values[i] for i in places] for name, values in series["columns"].items()}}


def _bucket(values: list[float | None]) -> tuple[float | None, float | None, float | None]:
    known = [value for value in values if value is not None]
    if not known:
        return None, None, None
    return _short(sum(known) / len(known)), _short(min(known)), _short(max(known))


def _short(value: float) -> float:
    """Seven digits: a chart shows fewer, and the exact value is a zoom away."""
    return value if isinstance(value, int) else float(f"{value:.7g}")


def _sum(series: Series, name: str) -> int:
    return int(sum(filter(None, series["columns"].get(name, []))))


def _steps(job: Job, *, after_seq: int, until_seq: int | None = None) -> Iterator[dict[str, Any]]:
    found = JobEvent.objects.filter(job=job, kind="step", seq__gt=after_seq).order_by("seq")
    if until_seq is not None:
        found = found.filter(seq__lte=until_seq)
    return found.values("seq", "at", "data").iterator(chunk_size=500)
