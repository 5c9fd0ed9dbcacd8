"""Tasks to begin with: each leads to a job form that only has to be sent, and its reward really tells right from wrong."""

from __future__ import annotations

import json

import pytest

from engine.rewards.lab import Lab, LabOrder
from engine.rewards.pool import GraderPool
from portal.pages.sample import SAMPLES
from tests.portal.world import World

RIGHT = {
    "additions": lambda item: item["answer"],
    "words": lambda item: f"So it is {item['answer']}",
    "json": lambda item: json.dumps({"name": item["name"], "city": item["city"], "count": int(item["count"])}),
    "search": lambda item: f"It is {item['answer']}.",
}


@pytest.mark.parametrize("key", SAMPLES)
def test_each_leads_to_a_form_that_is_filled_in(world: World, key: str) -> None:
    form = world.client(world.alice).post("/sample/", {"sample": key}, follow=True).context["form"]
    assert form["dataset"].value() == world.sums.datasets.get().public_id
    assert form["reward"].value() == world.sums.rewards.get().public_id


@pytest.mark.parametrize("key", SAMPLES)
async def test_its_reward_pays_for_right_answers_only(key: str) -> None:
    sample = SAMPLES[key]
    items = [json.loads(line) for line in sample.rows().read().splitlines()[:3]]
    cases = [{"sample": {"output_text": text}, "item": item} for item in items for text in (RIGHT[key](item), "no idea at all")]
    lab = Lab(lambda: GraderPool(sandbox=None), idle_seconds=3600)
    try:
        found = await lab.run(LabOrder(tenant="t", grader=sample.grader, cases=cases, begin_seconds=10))
    finally:
        await lab.close()
    assert [outcome["reward"] for result in found["results"] for outcome in result["outcomes"]] == pytest.approx([1.0, 0.0] * 3)


@pytest.mark.parametrize("key", SAMPLES)
def test_the_same_rows_are_made_every_time_and_none_twice(key: str) -> None:
    rows = SAMPLES[key].rows().read().splitlines()
    assert rows == SAMPLES[key].rows().read().splitlines()
    assert len(set(rows)) == len(rows) > 100


def test_what_no_model_here_can_run_says_so(world: World) -> None:
    html = world.client(world.alice).get("/gallery/").content.decode()
    assert "Needs a context of" in html
    assert "/datasets/import/?name=openai%2Fgsm8k" in html
