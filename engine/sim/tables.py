"""The paper's tables and figures as data, from simulations: every regime and ablation, at every scale.

The keys carry their units. ``…_s`` are seconds, ``…_share`` lie between 0 and 1, ``…_vs_single`` are ratios to ``single-disaggregated``.
"""

from __future__ import annotations

from statistics import mean
from typing import Any

from engine.core.policy import REGIMES
from engine.sim.paper import EPOCH_STEPS, SCALES
from engine.sim.report import StepTimes
from engine.sim.runs import Run, Runs

SINGLE, SYNC, OURS = "single-disaggregated", "multi-lora-sync", "marlaas"
ABLATIONS = (OURS, "no-async", "no-multi-lora", "no-async-no-multi-lora")
TASKS = ("gsm8k", "amc12", "search")
JOBS = 10
GROUP_SIZES = (1, 2, 4, 8)
JOB_COUNTS = (1, 2, 4, 8, 16, 32)
CURVES = (SINGLE, "single-collocated", SYNC, OURS)
SEARCH_STEPS = 100
CURVE_STEPS = 20
MIXED_STEPS = 20

Data = dict[str, Any]


def tables(runs: Runs) -> Data:
    """All artefacts by name."""
    return {
        "table_1": table_1(runs),
        "table_2": table_2(runs),
        "table_3": table_3(runs),
        "table_4": table_4(runs),
        "figure_6": figure_6(runs),
        "figure_7": figure_7(runs),
        "group_sizes": group_sizes(runs),
    }


def table_1(runs: Runs) -> Data:
    """Three tasks that share one engine, a job each: how long a step of each samples, and how long it waits for the others."""
    return {
        model: {name: _by_task(runs.run(name, workload="mixed", model=model, jobs=3, steps=MIXED_STEPS)) for name in (SYNC, OURS)}
        for model in SCALES
    }


def _by_task(run: Run) -> Data:
    return {task: _step_means(history.steps) for task, history in zip(TASKS, run.histories.values(), strict=True)}


def _step_means(steps: list[StepTimes]) -> Data:
    rollout = mean(step.rolled_out_at - step.started_at for step in steps)
    waiting = mean(step.started_at - step.idle_at + step.train_at - step.rolled_out_at for step in steps)
    train = mean(step.committed_at - step.train_at for step in steps)
    return {"rollout_s": rollout, "waiting_s": waiting, "train_s": train, "waiting_share": waiting / (rollout + waiting + train)}


def table_2(runs: Runs) -> Data:
    """Ten search jobs of a hundred steps: how long they take, and how many steps an hour that is."""
    return {model: {name: _speed_row(search(runs, name, model), search(runs, SINGLE, model)) for name in REGIMES} for model in SCALES}


def search(runs: Runs, name: str, model: str) -> Run:
    return runs.run(name, workload="search", model=model, jobs=JOBS, steps=SEARCH_STEPS)


def _speed_row(run: Run, single: Run) -> Data:
    report, other = run.report, single.report
    return {
        "wall_s": report.wall_seconds,
        "steps_per_hour": report.steps_per_hour,
        "throughput_vs_single": report.steps_per_hour / other.steps_per_hour,
        "runtime_vs_single": other.wall_seconds / report.wall_seconds,
        "ttfs_s": report.ttfs_seconds,
        "tpts_s": report.tpts_seconds,
        "completion_s": report.completion_seconds,
    }


def table_3(runs: Runs) -> Data:
    """The same runs: how busy the devices are."""
    return {model: {name: _busy_row(search(runs, name, model), search(runs, SINGLE, model)) for name in REGIMES} for model in SCALES}


def _busy_row(run: Run, single: Run) -> Data:
    return {
        "rollout_busy_share": run.report.rollout_busy,
        "train_busy_share": run.report.train_busy,
        "utilisation_share": run.utilisation,
        "idle_share": run.idle,
        "utilisation_vs_single": run.utilisation / single.utilisation,
        "idle_vs_single": run.idle / single.idle,
    }


def table_4(runs: Runs) -> Data:
    """The ablation: ten AMC12 jobs, one epoch. ``throughput_change`` is against all of it: ours."""
    return {model: _ablation(runs, model) for model in SCALES}


def _ablation(runs: Runs, model: str) -> Data:
    found = {name: runs.run(name, workload="amc12", model=model, jobs=JOBS, steps=EPOCH_STEPS["amc12"]).report for name in ABLATIONS}
    return {
        name: {
            "wall_s": report.wall_seconds,
            "steps_per_hour": report.steps_per_hour,
            "throughput_change": report.steps_per_hour / found[OURS].steps_per_hour - 1,
            "runtime_change": report.wall_seconds / found[OURS].wall_seconds - 1,
        }
        for name, report in found.items()
    }


def figure_6(runs: Runs) -> Data:
    """Steps an hour by number of search jobs."""
    return _curves(runs, lambda report: {"steps_per_hour": report.steps_per_hour, "wall_s": report.wall_seconds})


def figure_7(runs: Runs) -> Data:
    """Time to the first step and time per step, by number of search jobs."""
    return _curves(runs, lambda report: {"ttfs_s": report.ttfs_seconds, "tpts_s": report.tpts_seconds})


def _curves(runs: Runs, of: Any) -> Data:
    return {
        model: {
            name: {
                str(jobs): of(runs.run(name, workload="search", model=model, jobs=jobs, steps=CURVE_STEPS).report) for jobs in JOB_COUNTS
            }
            for name in CURVES
        }
        for model in SCALES
    }


def group_sizes(runs: Runs) -> Data:
    """Not in the paper: ours against one job at a time by group size, which the paper does not give."""
    return {model: {str(size): _by_group(runs, model, size) for size in GROUP_SIZES} for model in SCALES}


def _by_group(runs: Runs, model: str, size: int) -> Data:
    single, ours = (
        runs.run(name, workload="search", model=model, jobs=JOBS, steps=CURVE_STEPS, group_size=size).report for name in (SINGLE, OURS)
    )
    return {
        "throughput_vs_single": ours.steps_per_hour / single.steps_per_hour,
        "runtime_vs_single": single.wall_seconds / ours.wall_seconds,
    }


def rounded(value: Any) -> Any:
    """``value`` with six significant digits: all that a simulation can claim, and the same text on every machine."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
