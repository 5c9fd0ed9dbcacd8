"""What a job will cost is said before it runs, by the prices that it is billed by; and afterwards what a point of reward has cost."""

from __future__ import annotations

from typing import Any

import pytest

from portal.billing import costs, estimates, gate, worth
from portal.billing.models import Hold
from portal.jobs import catalog, door
from tests.portal.billing.books import STEP_MICROS, Run, account
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World


def of(world: World, **changes: Any) -> estimates.Estimate:
    order = door.check(world.sums, world.order(**changes), NOW)
    return estimates.estimate(world.sums, order.spec, NOW, gate.STEPS_AHEAD)


def test_what_is_set_aside_is_what_was_said(world: World) -> None:
    said = of(world, train={"steps": 40})
    job = world.job(train={"steps": 40})
    assert Hold.objects.get(job=job).micros == said.held
    assert said.at_most == 40 * said.held // gate.STEPS_AHEAD
    assert (said.likely, Hold.objects.get(job=job).estimate_micros) == (None, said.at_most)


def test_a_job_of_one_step_sets_one_step_aside(world: World) -> None:
    said = of(world, train={"steps": 1})
    assert said.held == said.at_most


def test_earlier_jobs_tell_what_is_likely(world: World, engine: FakeEngine) -> None:
    account(world.sums, 100_000_000)
    run = Run(world, engine, train={"steps": 40})
    run.step(1)
    run.step(2)
    run.store()
    said = of(world, train={"steps": 40})
    assert said.jobs == 1
    assert said.likely == 40 * STEP_MICROS
    assert Hold.objects.get(job=world.job(train={"steps": 40})).estimate_micros == said.likely


def test_another_tenants_jobs_tell_nothing(world: World, engine: FakeEngine) -> None:
    run = Run(world, engine, user=world.charlie)
    run.step(1)
    run.store()
    assert of(world).likely is None


def test_the_form_tells_it_as_it_stands(world: World) -> None:
    account(world.sums, 1)
    catalog.refresh(NOW)
    order = world.order()
    typed = {"dataset": order["dataset"], "reward": order["reward"], "base_model": "tiny-math", "environment.type": "single_turn"}
    shown = world.client(world.alice).post("/billing/estimate/", {**typed, "train.steps": "7"}).content.decode()
    assert "Cost, at most" in shown and "does not cover the start" in shown
    assert "when the form is whole" in world.client(world.alice).post("/billing/estimate/", {}).content.decode()
    assert "when the form is whole" in world.client(world.charlie).post("/billing/estimate/", typed).content.decode()
    assert not Hold.objects.exists()


@pytest.fixture
def run(world: World, engine: FakeEngine) -> Run:
    account(world.sums, 100_000_000)
    return Run(world, engine, train={"steps": 40})


def rewards(run: Run, *means: float | None) -> None:
    for number, mean in enumerate(means, start=1):
        run.step(number, rollout={"cached_tokens": 600, "reward_mean": mean})
    run.store()


def test_a_point_of_reward_costs_the_job_by_the_points_gained(run: Run) -> None:
    rewards(run, 0.2, 0.2, 0.2, 0.5, 0.6, 0.6, 0.6)
    found = worth.worth(run.job, costs.of(run.job))
    assert found is not None and not found.held_out
    assert found.gained == pytest.approx(40)
    assert found.micros_per_point == round(7 * STEP_MICROS / 40)


def test_held_out_rows_go_before_the_training_reward(run: Run) -> None:
    rewards(run, 0.2, 0.2, 0.2, 0.9, 0.9, 0.9)
    for version, mean in ((0, 0.3), (6, 0.4)):
        run.tell("eval", version=version, reward_mean=mean, sampled_tokens=0)
    run.store()
    found = worth.worth(run.job, 1_000_000)
    assert found is not None and (found.held_out, found.micros_per_point) == (True, 100_000)


@pytest.mark.parametrize("means", [(0.5, 0.5, 0.5, 0.5, 0.5, 0.5), (0.9, 0.9, 0.9, 0.1, 0.1, 0.1)])
def test_what_gained_nothing_has_no_price(run: Run, means: tuple[float, ...]) -> None:
    rewards(run, *means)
    found = worth.worth(run.job, 1_000_000)
    assert found is not None and found.micros_per_point is None


def test_steps_without_a_reward_are_no_end(run: Run) -> None:
    rewards(run, None, 0.1, 0.2, None, 0.3, 0.4, 0.5, None, 0.6, None)
    found = worth.worth(run.job, 1_000_000)
    assert found is not None and found.gained == pytest.approx(30)


def test_the_first_and_the_last_three_must_be_others(run: Run) -> None:
    rewards(run, 0.1, 0.2, 0.3, 0.4, 0.5)
    assert worth.worth(run.job, 1_000_000) is None


def test_a_long_job_is_read_at_its_ends_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worth, "END", 4)
    rewards(run, 0.2, 0.2, 0.2, None, None, 0.6, 0.6, 0.6)
    assert worth.worth(run.job, 1_000_000).gained == pytest.approx(40)
    rewards(run, *8 * [0.6], *2 * [None])
    assert worth.worth(run.job, 1_000_000) is None, "two of the last four have a reward"


def test_too_few_steps_and_missing_rewards_tell_nothing(run: Run) -> None:
    rewards(run, 0.1, None, 0.9)
    assert worth.worth(run.job, 1_000_000) is None


def test_the_run_page_shows_both(world: World, run: Run) -> None:
    rewards(run, 0.2, 0.2, 0.2, 0.6, 0.6, 0.6)
    shown = world.client(world.alice).get(f"/jobs/{run.job.public_id}/cost/").content.decode()
    assert "A point of reward" in shown and "for 40.0 points" in shown and "Expected in all" in shown
