"""A job that breaks the sampler under everybody (invariant I7): its neighbours lose attempts with it, never their last one."""

from __future__ import annotations

from tests.engine.core.house import House


def crash(house: House, *jobs: str) -> None:
    """The sampler dies: each of ``jobs`` loses the attempt that it has in rollout."""
    for job in jobs:
        house.rollout_failed(job)


def house_after(crashes: int, *jobs: str) -> House:
    house = House()
    for job in jobs:
        house.submit(job)
    for _ in range(crashes):
        crash(house, *jobs)
    return house


def rolling(house: House) -> list[str]:
    return [job for job in house.scheduler.jobs if house.phase(job) == "rollout"]


def test_after_one_crash_all_try_again_together():
    assert rolling(house_after(1, "a", "b", "poison")) == ["a", "b", "poison"]


def test_the_last_attempt_of_each_is_made_alone():
    house = house_after(2, "a", "b", "poison")
    assert rolling(house) == ["a"]
    house.rolled("a")
    assert rolling(house) == ["b"]


def test_who_breaks_the_sampler_alone_fails_alone():
    house = house_after(2, "a", "b", "poison")
    house.rolled("a")
    house.rolled("b")
    assert house.rollout_failed("poison")[0] == "release poison failed"
    assert house.ending().attribution == "platform"
    assert set(house.scheduler.jobs) == {"a", "b"}


def test_a_last_attempt_waits_until_what_rolls_has_ended_and_lets_nobody_overtake_it():
    house = House()
    house.submit("long")
    house.submit("a")
    crash(house, "a")
    assert house.rollout_failed("a") == []
    assert house.submit("late") == ["admit late"]
    assert house.rolled("long") == ["train long 0/1", "rollout a 0/3"]


def test_once_it_is_over_everybody_rolls_out_together_again():
    house = house_after(2, "a", "b")
    house.rolled("a")
    house.rolled("b")
    house.trained("a")
    house.trained("b")
    assert rolling(house) == ["a", "b"]


def test_a_cancelled_last_attempt_lets_the_others_go_on():
    house = house_after(2, "a", "b")
    house.cancel("a")
    assert rolling(house) == ["b"]


def test_those_who_wait_for_it_are_told_so():
    house = house_after(2, "a", "b")
    view = house.scheduler.view()["b"]
    assert (view.phase, view.code) == ("waiting", "rollouts")
    assert "lost before" in view.reason
