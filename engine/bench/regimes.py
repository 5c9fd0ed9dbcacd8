"""What one run under one regime amounts to, and what several rounds of it do. Pure functions of a ``Run``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median
from typing import Any

from engine.bench.bound import Bound
from engine.bench.intervals import minus, seconds, within
from engine.bench.run import Run, spans
from engine.follow import JobView

HOUR_SECONDS = 3600.0
WORKING = ("rollout", "train", "commit")
# Of several rounds their median stands in the report, and beside these also the least and the largest.
WITH_SPREAD = ("steps_per_hour", "wall_s", "idle_ready", "bound_ratio", "ordered_ratio")


def regime_figures(run: Run, bound: Bound | None = None) -> dict[str, Any]:
    """Seconds, and shares in 0..1.

    ``steps_per_hour``: steps of all jobs from the first submission until the first job ends; in one-at-a-time regimes over the whole run.
    ``wall_s``: first submission to last commit; of a run that was cut it is drawn out to all steps at the run's own pace up to there
    (``measured_share``: how much of the work was done, see ``work_done``): a round of many jobs that the cut broke off counts as not
    begun. ``rollout_busy``, ``train_busy``: of the throughput's window,
    with requests in the sampler and with a training under way. ``idle_ready``: of the whole run, with a device idle though a job waited to
    use it, for whatever reason: in the other regimes that is what the regime costs, in ``marlaas`` what the engine itself does.
    ``bound_ratio``: the bound's share of ``wall_s``; ``ordered_ratio`` likewise, of both devices' work side by side in the jobs' order.
    """
    if not run.steps:
        return {"steps": 0, "measured_share": 0.0}
    share = work_done(run)
    measured = run.last_commit - run.began
    wall = measured / share
    close = run.last_commit if run.one_at_a_time else run.first_end
    window = close - run.began
    per_hour = _per_hour(run.steps_wanted, wall) if run.one_at_a_time else _per_hour(_commits_until(run, close), window)
    busy = run.spans("rollout") if run.sampling is None else run.sampling
    idle = idle_although_ready(run)
    return {
        "steps_per_hour": per_hour,
        "wall_s": round(wall, 3),
        "ttfs_s": _ttfs(run),
        "tpts_s": _mean(view.ending.get("tpts_seconds") for view in run.jobs),
        "completion_s": _mean(view.ending["completion_seconds"] for view in run.jobs if view.state == "succeeded"),
        "rollout_busy": _share(seconds(within(busy, run.began, close)), window),
        "train_busy": _share(seconds(within(run.spans("train"), run.began, close)), window),
        "idle_ready": _share(idle["either"], measured),
        "idle_ready_rollout": _share(idle["rollout"], measured),
        "idle_ready_train": _share(idle["train"], measured),
        "bound_s": None if bound is None else round(bound.seconds, 3),
        "bound_ratio": None if bound is None else _share(bound.seconds, wall),
        "ordered_ratio": None if bound is None or bound.ordered_s is None else _share(bound.ordered_s, wall),
        "steps": run.steps,
        "measured_share": round(share, 3),
        "steps_without_signal": sum(data.get("skipped") is not None for view in run.jobs for data in view.committed),
        "tokens_sampled": sum(data.get("tokens", {}).get("sampled", 0) for view in run.jobs for data in view.committed),
    }


def work_done(run: Run) -> float:
    """The share of the run's work that it has done, 1.0 unless it was cut or a job failed: steps weighted by what a step of their kind of
    job takes without its waits. A kind of which no step was made counts as the dearest.
    """
    costs = {kind: _step_seconds([view for view in run.jobs if view.task == kind]) for kind in {view.task for view in run.jobs}}
    dearest = max(cost for cost in costs.values() if cost is not None)
    weights = {kind: dearest if cost is None else cost for kind, cost in costs.items()}
    done = sum(weights[view.task] * len(view.committed) for view in run.jobs)
    return done / sum(weights[view.task] * view.steps for view in run.jobs)


def _step_seconds(views: list[JobView]) -> float | None:
    phases = [sum(end - start for start, end in spans(view, *WORKING)) for view in views]
    steps = sum(len(view.committed) for view in views)
    return sum(phases) / steps if steps else None


def idle_although_ready(run: Run) -> dict[str, float]:
    """Seconds in which a device had nothing to do while a job stood before it, by device and with either."""
    sampling = run.spans("rollout") if run.sampling is None else run.sampling
    rollout = minus(run.spans("wait_rollout"), sampling)
    train = minus(run.spans("wait_train"), run.spans("train"))
    return {"rollout": seconds(rollout), "train": seconds(train), "either": seconds([*rollout, *train])}


def over_rounds(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The median of each figure; ``ttfs_s`` job by job; ``spread``: the least and the largest of some."""
    found = {name: _middle([one.get(name) for one in rounds]) for name in rounds[0]}
    spread = {name: _range(one.get(name) for one in rounds) for name in WITH_SPREAD if found.get(name) is not None}
    return {**found, "rounds": len(rounds), "spread": spread}


def _middle(values: list[Any]) -> Any:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if isinstance(known[0], list):
        return [_middle(list(column)) for column in zip(*known, strict=False)]
    return round(median(known), 3)


def _range(values: Iterable[float | None]) -> list[float]:
    known = [value for value in values if value is not None]
    return [min(known), max(known)]


def _commits_until(run: Run, close: float) -> int:
    return sum(commit <= close for view in run.jobs for commit in view.commits)


def _ttfs(run: Run) -> list[float]:
    """Of the jobs that got to a first step, in the order of their submission."""
    return [round(view.commits[0] - run.submitted[name], 3) for name, view in run.views.items() if view.commits]


def _per_hour(steps: int, over_seconds: float) -> float | None:
    return round(steps * HOUR_SECONDS / over_seconds, 1) if over_seconds > 0 else None


def _share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole > 0 else 0.0


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 3) if known else None
