"""The same job through our engine and through the plain loop: data, order, reward, LoRA, batch and learning rate alike, sampling apart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev

import pytest

from engine.data import step_rows
from engine.models.tasks import rows
from engine.spec import JobSpec
from tests.engine.engines import running_engine
from tests.engine.train.plain_loop import PlainLoop, load_peft
from tests.engine.train.test_learning import Sampler, roll_out

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]

SEEDS, STEPS, PROMPTS = range(4), 12, 16


def through_the_engine(state: Path) -> tuple[list[list[float]], list[JobSpec]]:
    """Each seed's rewards by step, and its spec."""
    with running_engine(state) as engine:
        views = engine.play(["add"] * len(SEEDS), steps=STEPS, prompts=PROMPTS, learning_rate=1e-3)
        specs = [engine.submission("add", seed, steps=STEPS, prompts=PROMPTS, learning_rate=1e-3).spec for seed in SEEDS]
    return [view.rewards for view in views.values()], specs


def through_the_plain_loop(spec: JobSpec, home: Path) -> list[float]:
    import torch

    from engine.models.registry import BUNDLED_DIR
    from engine.train.worker import TrainWorker

    torch.manual_seed(spec.seed)
    data, group, rewards = rows("add", count=spec.dataset.train_rows, seed=spec.seed), spec.rollout.group_size, []
    snapshot = TrainWorker(BUNDLED_DIR).fresh("a", spec)
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        (home / name).write_bytes(snapshot[name])
    loop, sampler = PlainLoop(load_peft(BUNDLED_DIR, home, trainable=True), spec), Sampler(home)
    sampler.model = loop.model
    for version in range(STEPS):
        chosen = [data[row] for row in step_rows(len(data), PROMPTS, spec.seed, version)]
        batch = roll_out(sampler, chosen, version, group=group)
        rewards.append(fmean(t.reward for t in batch.trajectories))
        loop.step(batch.trajectories, group)
    return rewards


def areas(curves: Sequence[Sequence[float]]) -> list[float]:
    """The mean reward of each run over all of its steps: what a slower or faster rise changes first."""
    return [fmean(curve) for curve in curves]


def test_reward_curves_agree_within_the_spread_of_the_seeds(tmp_path, one_rank):
    ours, specs = through_the_engine(tmp_path / "state")
    theirs = []
    for spec in specs:
        home = tmp_path / f"plain-{spec.seed}"
        home.mkdir()
        theirs.append(through_the_plain_loop(spec, home))

    for curves in (ours, theirs):
        assert fmean(fmean(curve[-3:]) for curve in curves) > fmean(fmean(curve[:2]) for curve in curves) + 0.2
    spread = max(stdev(areas(ours)), stdev(areas(theirs)))
    assert abs(fmean(areas(ours)) - fmean(areas(theirs))) < 2 * spread
