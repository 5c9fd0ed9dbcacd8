"""The real scheduler in virtual time: what each regime costs, to the second."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.core import messages as m
from engine.core.adaptive import Adaptive
from engine.core.policy import REGIMES, Policy, regime
from engine.sim.driver import Simulation, Stalled, simulate
from engine.sim.paper import SCALES, WORKLOADS
from engine.sim.report import Report
from engine.sim.speeds import ConstantSpeeds, Overheads
from engine.sim.workload import each, replicas
from tests.engine.sim.shapes import SECOND, always, job, jobs

TAKING_TURNS = ConstantSpeeds(seconds_per_iteration=0.0, seconds_per_sequence=1.0, fixed_train_seconds=1.0)
NODE = SCALES["Qwen3-0.6B"].disaggregated()


def run(name: str, work, speeds=SECOND) -> Report:
    return simulate(regime(name, slots=32), work, speeds)


def test_a_lone_job_takes_the_sum_of_its_phases():
    report = run("marlaas", jobs(1, env_seconds=5.0))
    assert (report.wall_seconds, report.ttfs_seconds, report.tpts_seconds, report.completion_seconds) == (32.0, 16.0, 16.0, 32.0)


def test_a_step_is_told_apart_into_its_phases():
    report = run("multi-lora-sync", [job("fast", steps=1), job("slow", steps=1, decode_seconds=90.0)])
    assert (report.rollout_seconds, report.wait_train_seconds, report.train_seconds) == (50.0, (80.0 + 1.0) / 2, 1.0)


def test_tools_and_their_text_come_between_the_turns():
    tools = {"call_shares": (0.0, 0.0, 1.0), "tool_wait": always(3.0), "tool_tokens": 7}
    speeds = ConstantSpeeds(seconds_per_prefill_token=1.0)
    report = run("marlaas", [job(steps=1, decode_seconds=2.0, **tools)], speeds)
    assert report.wall_seconds == (1 + 2) + 3 + (7 + 2) + 3 + (7 + 2)


def test_one_at_a_time_the_jobs_add_up():
    assert run("single-disaggregated", jobs(4)).wall_seconds == 88.0


def test_one_at_a_time_throughput_is_counted_over_the_whole_run():
    report = run("single-disaggregated", [job(steps=1), job("long", decode_seconds=99.0)])
    assert report.steps_per_hour == pytest.approx(3 / 211 * 3600)


def test_sharing_overlaps_all_but_the_training():
    assert run("marlaas", jobs(4)).wall_seconds == 25.0


def test_a_barrier_adds_every_training_to_every_round():
    assert run("multi-lora-sync", jobs(4)).wall_seconds == 28.0


def test_a_barrier_makes_the_fast_wait_for_the_slow():
    pair = [job(steps=1), job("slow", steps=1, decode_seconds=90.0)]
    assert run("multi-lora-sync", pair).ttfs_seconds == (91 + 92) / 2
    assert run("marlaas", pair).ttfs_seconds == (11 + 91) / 2


def test_throughput_is_counted_until_the_first_job_ends():
    report = run("marlaas", [job(steps=1), job("long", steps=50)])
    assert report.steps_per_hour == pytest.approx(1 / 11 * 3600)


def test_the_sampler_is_idle_while_a_lone_job_waits_for_its_tools_and_the_trainer():
    report = run("marlaas", jobs(1, env_seconds=9.0))
    assert (report.rollout_busy, report.train_busy) == pytest.approx((0.5, 0.05))


def test_the_more_jobs_share_the_busier_the_devices():
    few, many = (run("marlaas", replicas(WORKLOADS["search"], jobs=n, steps=5), NODE) for n in (1, 8))
    assert many.rollout_busy > 1.5 * few.rollout_busy
    assert many.train_busy > few.train_busy


def test_evaluations_cost_the_steps_nothing_but_the_last_one_delays_the_end():
    report = run("marlaas", jobs(1, eval_seconds=7.0))
    assert (report.tpts_seconds, report.wall_seconds) == (11.0, 29.0)


def test_a_job_that_comes_later_counts_from_its_own_submission():
    report = run("marlaas", [job(), job("late", submitted_at=100.0)])
    assert (report.ttfs_seconds, report.completion_seconds) == (11.0, 22.0)


def test_a_job_that_is_stopped_frees_the_sampler_at_once():
    simulation = Simulation(regime("marlaas", slots=8), jobs(2), TAKING_TURNS)
    stop = m.Stopped(at=4.0, job="j1", outcome="cancelled", reason="asked to", attribution="user")
    simulation.clock.call_at(4.0, lambda: simulation.tell(stop))
    assert simulation.run().ttfs_seconds == 4.0 + 8.0 + 1.0


@pytest.mark.parametrize("delay", [0.0, 2.0, 12.0, 25.0])
def test_a_job_that_is_stopped_in_any_phase_leaves_nothing_behind(delay):
    simulation = Simulation(regime("marlaas", slots=8), jobs(2, env_seconds=5.0), TAKING_TURNS)
    stop = m.Stopped(at=delay, job="j1", outcome="cancelled", reason="asked to", attribution="user")
    simulation.clock.call_at(delay, lambda: simulation.tell(stop))
    assert simulation.run().steps >= 2
    assert not simulation.sampler.meter.busy
    assert not simulation.trainer.meter.busy


def test_every_overhead_is_paid_where_it_belongs():
    names = Overheads.__dataclass_fields__
    costs = {name: 0.0 for name in names} | {"sampling_slowdown": 1.0, "training_slowdown": 1.0}
    base = run("marlaas", jobs(1, steps=1)).wall_seconds
    seconds = [name for name in names if name.endswith("seconds") or name.startswith("seconds")]
    for name in seconds:
        dear = replace(SECOND, overheads=Overheads(**{**costs, name: 3.0}))
        assert run("marlaas", jobs(1, steps=1), dear).wall_seconds == base + 3.0, name
    assert len(seconds) == 10


def test_two_devices_of_one_machine_slow_each_other_while_both_work():
    speeds = ConstantSpeeds(fixed_train_seconds=10.0, overheads=Overheads(sampling_slowdown=2.0, training_slowdown=2.0))
    pair = [job(steps=1), job("late", steps=1, submitted_at=10.0)]
    # From 10 to 30 the first trains and the second samples, each at half speed; then the second trains alone.
    assert run("marlaas", pair, speeds).wall_seconds == 40.0


@pytest.mark.parametrize("name", sorted(REGIMES))
def test_every_regime_does_the_same_work(name):
    report = simulate(regime(name, slots=4), replicas(WORKLOADS["mixed"], jobs=7, steps=3), NODE)
    reference = simulate(Policy(max_active=7), replicas(WORKLOADS["mixed"], jobs=7, steps=3), NODE)
    assert (report.jobs, report.steps) == (7, 21)
    assert report.sampled_tokens_total == pytest.approx(reference.sampled_tokens_total)
    assert report.train_busy_seconds_total == pytest.approx(reference.train_busy_seconds_total)


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
@pytest.mark.parametrize("name", sorted(REGIMES))
def test_no_device_is_more_than_wholly_busy(name, workload):
    report = simulate(regime(name, slots=32), replicas(WORKLOADS[workload], jobs=6, steps=3), NODE)
    assert 0 < report.rollout_busy <= 1
    assert 0 < report.train_busy <= 1
    assert report.train_busy_seconds_total <= report.wall_seconds


@pytest.mark.parametrize("model", sorted(SCALES))
@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_without_barriers_no_run_is_slower(workload, model):
    work, speeds = replicas(WORKLOADS[workload], jobs=9, steps=4), SCALES[model].disaggregated()
    assert run("marlaas", work, speeds).wall_seconds <= 1.001 * run("multi-lora-sync", work, speeds).wall_seconds


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_one_job_alone_takes_as_long_in_every_disaggregated_regime(workload):
    work = replicas(WORKLOADS[workload], jobs=1, steps=4)
    walls = [run(name, work, NODE).wall_seconds for name in REGIMES if name != "single-collocated"]
    assert walls == pytest.approx([walls[0]] * len(walls))


@pytest.mark.parametrize("name", ["single-disaggregated", "multi-lora-sync", "marlaas"])
@pytest.mark.parametrize("workload", ["gsm8k", "search"])
def test_a_handful_of_cohorts_takes_as_long_as_all_sequences_one_by_one(workload, name):
    work = replicas(WORKLOADS[workload], jobs=3, steps=5)
    reference = run(name, [replace(job, draw=each) for job in work], NODE)
    assert run(name, work, NODE).wall_seconds == pytest.approx(reference.wall_seconds, rel=0.05)


def test_an_adaptive_policy_is_fed_with_the_samplers_memory():
    speeds = ConstantSpeeds(fixed_train_seconds=1.0, kv_capacity_tokens=1e6)
    one_by_one = Policy(max_active=8, max_rollouts=1)
    adaptive = Policy(max_active=8, kv_hold="rollout", adaptive=Adaptive(start=1))
    work = jobs(8, decode_seconds=50.0)
    assert simulate(adaptive, work, speeds).wall_seconds < 0.5 * simulate(one_by_one, work, speeds).wall_seconds


def test_a_queue_beside_a_full_cache_lowers_an_adaptive_limit():
    speeds = ConstantSpeeds(fixed_train_seconds=1.0, kv_capacity_tokens=100.0)
    policy = Policy(max_active=8, kv_hold="rollout", adaptive=Adaptive(start=6, full=0.5))
    simulation = Simulation(policy, jobs(8, decode_seconds=50.0, steps=1), speeds)
    limits = []
    simulation.clock.call_at(20.0, lambda: limits.append(simulation.scheduler.pipeline.concurrency.limit))
    assert simulation.run().steps == 8
    assert limits[0] < 6


def test_the_same_seed_gives_the_same_report_and_another_seed_another():
    first, again, other = (run("marlaas", replicas(WORKLOADS["mixed"], jobs=4, steps=3, seed=s), NODE) for s in (1, 1, 2))
    assert first == again != other


def test_thirty_two_jobs_of_a_hundred_steps_need_three_decisions_a_step():
    simulation = Simulation(regime("marlaas", slots=32), replicas(WORKLOADS["gsm8k"], jobs=32, steps=100), NODE)
    assert simulation.run().steps == 3200
    assert simulation.decisions == 32 + 3 * 3200


def test_a_run_that_gets_stuck_says_which_jobs_are_open():
    simulation = Simulation(Policy(max_active=1), jobs(1), SECOND)
    simulation.scheduler.handle(m.AdmissionChanged(at=0.0, mode="paused"))
    with pytest.raises(Stalled, match="j0"):
        simulation.run()


def test_a_report_needs_a_job():
    with pytest.raises(ValueError, match="at least one job"):
        simulate(Policy(max_active=1), [], SECOND)
