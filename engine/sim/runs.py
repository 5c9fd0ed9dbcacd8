"""Runs of the paper's workloads that several tables share: each is simulated once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from engine.core.policy import Policy, regime
from engine.sim.driver import Simulation
from engine.sim.paper import SCALES, WORKLOADS
from engine.sim.report import JobHistory, Report
from engine.sim.workload import replicas

SLOTS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """``utilisation``: busy share of all devices, rollout's and training's weighted by their number; collocated they are the same ones."""

    report: Report
    histories: dict[str, JobHistory]
    utilisation: float

    @property
    def idle(self) -> float:
        return 1.0 - self.utilisation


@dataclass(kw_only=True)
class Runs:
    """``told`` hears a line about each new simulation. ``most_steps``: no job gets more, for a quick look (None: the paper's numbers)."""

    seed: int = 0
    most_steps: int | None = None
    told: Callable[[str], None] = lambda line: None
    _done: dict[tuple[Policy, str, str, int, int, int | None], Run] = field(default_factory=dict)

    def run(self, name: str, *, workload: str, model: str, jobs: int, steps: int, group_size: int | None = None) -> Run:
        """``group_size``: another than the workload's own."""
        policy = regime(name, slots=SLOTS)
        steps = min(steps, self.most_steps or steps)
        key = (policy, workload, model, jobs, steps, group_size)
        if key not in self._done:
            self.told(f"{name}: {jobs} {workload} jobs of {steps} steps on {model}")
            self._done[key] = self._simulate(policy, workload, model, jobs, steps, group_size)
        return self._done[key]

    def _simulate(self, policy: Policy, workload: str, model: str, jobs: int, steps: int, group_size: int | None) -> Run:
        scale, shapes = SCALES[model], [replace(shape, group_size=group_size or shape.group_size) for shape in WORKLOADS[workload]]
        speeds = scale.collocated() if policy.collocated else scale.disaggregated()
        simulation = Simulation(policy, replicas(shapes, jobs=jobs, steps=steps, seed=self.seed), speeds)
        report = simulation.run()
        if policy.collocated:
            utilisation = report.rollout_busy + report.train_busy
        else:
            devices = (scale.rollout_devices, scale.train_devices)
            utilisation = (devices[0] * report.rollout_busy + devices[1] * report.train_busy) / sum(devices)
        return Run(report=report, histories=simulation.history, utilisation=utilisation)
