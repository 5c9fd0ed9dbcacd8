"""The real scheduler in virtual time: what each regime costs, to the second."""

from __future__ import annotations

import pytest

from engine.core import messages as m
from engine.core.policy import REGIMES, Policy, regime
from engine.sim.driver import Simulation, Stalled, simulate
from engine.sim.workload import SimJob, workload


def jobs(count: int, **changes: float) -> list[SimJob]:
    fields = {"steps": 2, "kv_bytes": 1, "decode_seconds": 10.0, "env_seconds": 0.0, "train_seconds": 1.0, **changes}
    return [SimJob(job=f"j{n}", tenant=f"t{n}", **fields) for n in range(count)]


def test_a_lone_job_takes_the_sum_of_its_phases():
    report = simulate(regime("marlaas", slots=8), jobs(1, env_seconds=5.0))
    assert (report.wall_seconds, report.ttfs_seconds, report.tpts_seconds, report.completion_seconds) == (32.0, 16.0, 16.0, 32.0)


def test_one_at_a_time_the_jobs_add_up():
    assert simulate(regime("single-disaggregated", slots=8), jobs(4)).wall_seconds == 88.0


def test_one_at_a_time_throughput_is_counted_over_the_whole_run():
    short, long = jobs(1, steps=1)[0], SimJob(**{**_fields(jobs(1, decode_seconds=99.0)[0]), "job": "long"})
    report = simulate(regime("single-disaggregated", slots=8), [short, long])
    assert report.steps_per_hour == pytest.approx(3 / 211 * 3600)


def test_sharing_overlaps_all_but_the_training():
    assert simulate(regime("marlaas", slots=8), jobs(4)).wall_seconds == 25.0


def test_a_barrier_adds_every_training_to_every_round():
    assert simulate(regime("multi-lora-sync", slots=8), jobs(4)).wall_seconds == 28.0


def test_a_barrier_makes_the_fast_wait_for_the_slow():
    pair = [*jobs(1, steps=1), SimJob(job="slow", tenant="s", steps=1, kv_bytes=1, decode_seconds=90.0, env_seconds=0.0, train_seconds=1.0)]
    assert simulate(regime("multi-lora-sync", slots=8), pair).ttfs_seconds == (91 + 92) / 2
    assert simulate(regime("marlaas", slots=8), pair).ttfs_seconds == (11 + 91) / 2


def test_throughput_is_counted_until_the_first_job_ends():
    short, long = jobs(1, steps=1)[0], SimJob(**{**_fields(jobs(1)[0]), "job": "long", "steps": 50})
    report = simulate(regime("marlaas", slots=8), [short, long])
    assert report.steps_per_hour == pytest.approx(1 / 11 * 3600)


def _fields(job: SimJob) -> dict[str, object]:
    return {name: getattr(job, name) for name in SimJob.__dataclass_fields__}


def test_the_sampler_is_idle_while_a_lone_job_waits_for_its_tools_and_the_trainer():
    report = simulate(regime("marlaas", slots=8), jobs(1, env_seconds=9.0))
    assert (report.rollout_busy, report.train_busy) == pytest.approx((0.5, 0.05))


def test_the_more_jobs_share_the_busier_the_devices():
    few, many = (simulate(regime("marlaas", slots=32), workload("agentic", jobs=n, steps=5), contention=0.1) for n in (1, 8))
    assert many.rollout_busy > 1.5 * few.rollout_busy
    assert many.train_busy > few.train_busy


def test_evaluations_cost_the_steps_nothing_but_the_last_one_delays_the_end():
    report = simulate(regime("marlaas", slots=8), jobs(1, eval_seconds=7.0))
    assert (report.tpts_seconds, report.wall_seconds) == (11.0, 29.0)


def test_a_job_that_comes_later_counts_from_its_own_submission():
    first, second = jobs(2)
    late = SimJob(**{**_fields(second), "submitted_at": 100.0})
    report = simulate(regime("marlaas", slots=8), [first, late])
    assert (report.ttfs_seconds, report.completion_seconds) == (11.0, 22.0)


def test_a_job_that_is_stopped_frees_the_sampler_at_once():
    simulation = Simulation(regime("marlaas", slots=8), jobs(2), contention=1.0)
    stop = m.Stopped(at=4.0, job="j1", outcome="cancelled", reason="asked to", attribution="user")
    simulation.clock.call_at(4.0, lambda: simulation.tell(stop))
    assert simulation.run().ttfs_seconds == 4.0 + 8.0 + 1.0


@pytest.mark.parametrize("name", sorted(REGIMES))
def test_every_regime_finishes_the_same_steps(name):
    report = simulate(regime(name, slots=4), workload("mixed", jobs=7, steps=3), contention=0.2)
    assert (report.jobs, report.steps) == (7, 21)


def test_the_same_seed_gives_the_same_report_and_another_seed_another():
    first, again, other = (simulate(regime("marlaas", slots=4), workload("mixed", jobs=4, steps=3, seed=s)) for s in (1, 1, 2))
    assert first == again != other


def test_thirty_two_jobs_of_a_hundred_steps_need_two_decisions_a_step():
    simulation = Simulation(regime("marlaas", slots=32), workload("mixed", jobs=32, steps=100))
    assert simulation.run().steps == 3200
    assert simulation.decisions == 32 + 2 * 3200


def test_a_run_that_gets_stuck_says_which_jobs_are_open():
    simulation = Simulation(Policy(max_active=1), jobs(1))
    simulation.scheduler.handle(m.AdmissionChanged(at=0.0, mode="paused"))
    with pytest.raises(Stalled, match="j0"):
        simulation.run()


def test_a_report_needs_a_job():
    with pytest.raises(ValueError, match="at least one job"):
        simulate(Policy(max_active=1), [])
