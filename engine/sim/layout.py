"""The tables for people, in the paper's layout: a block a scale, a row a regime."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from engine.sim.paper import SCALES
from engine.sim.roofline import A100

Data = dict[str, Any]

NOTES = f"""\
Simulated, not measured: the engine's own scheduler under a virtual clock, on a model of {A100.name} devices from datasheet arithmetic.
Nothing was fitted to the paper. Its accelerators, node sizes and group size were not at hand: devices as below, groups of 8. Every number
behind this stands in engine/sim/roofline.py and engine/sim/paper.py with its source. Admission is bound by 32 slots alone; what exceeds
the cache waits inside the sampler, as with the paper's soft limit. no-async is multi-lora-sync by definition."""


def text(found: Data) -> str:
    blocks = [NOTES, _scales()]
    blocks += [_table_1(found["table_1"]), _table_2(found["table_2"]), _table_3(found["table_3"]), _table_4(found["table_4"])]
    blocks += [_figure("Figure 6. Steps an hour by number of search jobs", found["figure_6"], "steps_per_hour")]
    blocks += [_figure("Figure 7. TTFS in seconds by number of search jobs", found["figure_7"], "ttfs_s")]
    blocks += [_figure("Figure 7. TPTS in seconds by number of search jobs", found["figure_7"], "tpts_s")]
    blocks += [_groups(found["group_sizes"]), _statements(found["statements"])]
    return "\n\n".join(blocks)


def _scales() -> str:
    rows = [[s.model, s.rollout_devices, s.train_devices, s.tensor_parallel] for s in SCALES.values()]
    return grid("Devices", ["model", "rollout", "training", "tensor parallel"], rows)


def _table_1(data: Data) -> str:
    rows = [
        [model, name, task, _s(row["rollout_s"]), _s(row["waiting_s"]), _s(row["train_s"]), _p(row["waiting_share"])]
        for model, regimes in data.items()
        for name, tasks in regimes.items()
        for task, row in tasks.items()
    ]
    head = ["model", "regime", "task", "rollout s", "waiting s", "train s", "waiting"]
    return grid("Table 1. A step of three tasks that share one engine: rollout latency, and waiting for the others", head, rows)


def _table_2(data: Data) -> str:
    rows = [
        [
            model,
            name,
            _s(row["wall_s"]),
            f"{row['steps_per_hour']:.1f}",
            _x(row["throughput_vs_single"]),
            _x(row["runtime_vs_single"]),
            _s(row["ttfs_s"]),
            _s(row["tpts_s"]),
        ]
        for model, name, row in _rows(data)
    ]
    head = ["model", "regime", "wall s", "steps/h", "throughput", "runtime", "TTFS s", "TPTS s"]
    return grid("Table 2. Ten search jobs of 100 steps; ratios to one job at a time (runtime: how many times shorter)", head, rows)


def _table_3(data: Data) -> str:
    rows = [
        [
            model,
            name,
            *(_p(row[key]) for key in ("rollout_busy_share", "train_busy_share", "utilisation_share", "idle_share")),
            _x(row["utilisation_vs_single"]),
        ]
        for model, name, row in _rows(data)
    ]
    head = ["model", "regime", "rollout busy", "train busy", "utilisation", "idle", "utilisation ratio"]
    return grid("Table 3. The same runs: share of time in which devices have work, all devices together, and idle", head, rows)


def _table_4(data: Data) -> str:
    rows = [
        [
            model,
            name,
            _s(row["wall_s"]),
            f"{row['steps_per_hour']:.1f}",
            f"{row['throughput_change']:+.0%}",
            f"{row['runtime_change']:+.0%}",
        ]
        for model, name, row in _rows(data)
    ]
    return grid("Table 4. Ablation: ten AMC12 jobs, one epoch", ["model", "regime", "wall s", "steps/h", "throughput", "runtime"], rows)


def _figure(title: str, data: Data, key: str) -> str:
    counts = list(next(iter(next(iter(data.values())).values())))
    rows = [[model, name, *(f"{curve[jobs][key]:.1f}" for jobs in counts)] for model, name, curve in _rows(data)]
    return grid(title, ["model", "regime", *counts], rows)


def _groups(data: Data) -> str:
    counts = list(next(iter(data.values())))
    rows = [[model, *(_x(row[size]["throughput_vs_single"]) for size in counts)] for model, row in data.items()]
    title = "If the paper's batches were smaller: marlaas against one job at a time, ten search jobs, by group size"
    return grid(title, ["model", *counts], rows)


def _statements(found: list[Data]) -> str:
    lines = ["The paper's own statements, and what the simulation shows"]
    for one in found:
        lines += [f"- {one['subject']}", f"    paper:      {one['paper']}", f"    simulation: {one['simulated']}"]
        lines += [f"    differs:    {one['why']}"] if one["why"] else []
    return "\n".join(lines)


def grid(title: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as their widest cell; words to the left, numbers to the right; a name repeated from the row above is left out."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head), *cells]) for i in range(len(head))]
    words = [any(row[i][:1].isalpha() for row in cells) for i in range(len(head))]
    lines = [title, _line(head, widths, words)]
    above: list[str] = []
    for row in cells:
        shown = ["" if words[i] and row[: i + 1] == above[: i + 1] else row[i] for i in range(len(row))]
        lines.append(_line(shown, widths, words))
        above = row
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int], words: Sequence[bool]) -> str:
    padded = [cell.ljust(width) if word else cell.rjust(width) for cell, width, word in zip(cells, widths, words, strict=True)]
    return "  ".join(padded).rstrip()


def _rows(data: Data) -> Iterable[tuple[str, str, Data]]:
    return ((model, name, row) for model, regimes in data.items() for name, row in regimes.items())


def _s(seconds: float) -> str:
    return f"{seconds:,.1f}"


def _p(share: float) -> str:
    return f"{share:.0%}"


def _x(ratio: float) -> str:
    return f"{ratio:.2f}x"
