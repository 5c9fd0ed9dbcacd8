from __future__ import annotations

import pytest

from engine.follow import JobView, shares


def step(version: int, *, reward: float = 0.5, rollout=(0.0, 1.0), train=(1.0, 2.0)) -> dict:
    spans = [{"phase": phase, "start": begin, "end": end} for phase, (begin, end) in (("rollout", rollout), ("train", train))]
    seconds = {"rollout": rollout[1] - rollout[0], "train": train[1] - train[0]}
    return {"version": version, "rollout": {"reward_mean": reward}, "spans": spans, "seconds": seconds, "mismatch_kl": 0.0}


def view(*events: tuple[str, dict], steps: int = 4) -> JobView:
    made = JobView(job="a", tenant="t", task="add", steps=steps)
    for kind, data in events:
        made.take({"kind": kind, "data": data})
    return made


def test_a_job_is_what_its_events_tell():
    told = view(("accepted", {}), ("rollout_started", {}), ("step", step(1, reward=0.25)), ("eval", {"version": 0, "reward_mean": 0.4}))

    assert (told.step, told.phase, told.reward_text, told.heldout) == (1, "committed", "0.25", {0: 0.4})


def test_the_end_has_the_last_word():
    told = view(("step", step(1)), ("ended", {"state": "failed", "reason": "no signal"}))

    assert (told.state, told.phase, told.report()["reason"]) == ("failed", "failed", "no signal")


def test_the_time_left_follows_the_pace_so_far():
    told = view(("step", step(1, train=(1.0, 2.0))), ("step", step(2, train=(4.0, 5.0))))

    assert told.left_text == "6 s"


def test_a_step_without_a_mismatch_leaves_the_mean_to_the_others():
    steps = [("step", {**step(n), "mismatch_kl": kl}) for n, kl in enumerate((2e-7, None, 4e-7), 1)]

    assert view(*steps).mismatch_kl == pytest.approx(3e-7)
    assert view(steps[1]).mismatch_kl is None


def test_unknown_kinds_are_passed_over():
    assert view(("levitated", {})).phase == "submitted"


def test_work_that_was_lost_is_counted():
    assert view(("rollout_lost", {}), ("train_lost", {})).report()["attempts_lost"] == 2


def test_shares_tell_how_much_ran_beside_one_another():
    one = view(("step", step(1, rollout=(0.0, 2.0), train=(2.0, 4.0))))
    other = view(("step", step(1, rollout=(1.0, 3.0), train=(4.0, 5.0))))
    before, after = {"decode_steps": 10, "decode_steps_with_2_adapters": 5}, {"decode_steps": 30, "decode_steps_with_2_adapters": 20}

    found = shares({"a": one, "b": other}, before, after)

    assert found["rollout_overlap"] == pytest.approx(1 / 5, abs=1e-3)
    assert found["train_rollout_overlap"] == pytest.approx(1 / 3, abs=1e-3)
    assert found["decode_steps_with_2_adapters"] == 0.75


def test_a_sampler_that_was_restarted_counts_from_its_start():
    found = shares({"a": view(("step", step(1)))}, {"decode_steps": 100}, {"decode_steps": 10, "decode_steps_with_2_adapters": 5})

    assert found["decode_steps_with_2_adapters"] == 0.5
