from __future__ import annotations

from typing import Any

import pytest

from portal.billing.models import Hold
from tests.portal.world import World


def send(world: World, **changes: Any) -> Any:
    order = world.order()
    typed = {
        "dataset": order["dataset"],
        "reward": order["reward"],
        "base_model": "tiny-math",
        "environment.type": "single_turn",
        **changes,
    }
    return world.client(world.alice).post("/jobs/new/", typed)


def test_a_budget_typed_on_the_form_is_the_jobs(world: World) -> None:
    assert send(world, **{"budget.micros": "12.50", "budget.tokens": "1000000"}).status_code == 302
    hold = Hold.objects.get()
    assert (hold.budget_micros, hold.budget_tokens) == (12_500_000, 1_000_000)


def test_without_a_budget_there_is_none(world: World) -> None:
    assert send(world).status_code == 302
    assert (Hold.objects.get().budget_micros, Hold.objects.get().budget_tokens) == (None, None)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ({"budget.micros": "a lot"}, "is no amount"),
        ({"budget.micros": "-1"}, "must be a whole number above 0"),
        ({"budget.micros": "0.000001"}, "first steps alone may cost"),
        ({"budget.tokens": "5"}, "first steps alone may take"),
    ],
)
def test_a_bad_budget_is_told_beside_its_field(world: World, typed: dict, words: str) -> None:
    answer = send(world, **typed)
    assert answer.status_code == 422 and words in answer.content.decode()
    assert not Hold.objects.exists()
