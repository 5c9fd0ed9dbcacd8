"""The environment on the job form: what is chosen is what the door is asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import almanac
from engine.spec import JobSpec, Tools
from portal.datasets.actions import create_dataset
from portal.jobs import environments, presets
from tests.portal.fake_engine import TINY
from tests.portal.world import World, jsonl

ARTICLES = [{"prompt": "-", "title": f"Moss {n}", "text": "grows on stones"} for n in range(20)]
# Small enough for the fake engine's model of 128 tokens.
SMALL = {"environment.type": "tools", "environment.tools": ["search", "python"], "environment.max_tokens": "64"}


def order(world: World, **changes: Any) -> dict[str, Any]:
    base = {"dataset": world.dataset().public_id, "reward": world.reward().public_id, "base_model": "tiny-math"}
    return {**base, **changes}


def environment_of(world: World, **changes: Any) -> Any:
    answer = world.client(world.alice).post("/jobs/new/", order(world, **changes))
    assert answer.status_code == 302, answer.context["form"].errors
    return JobSpec.model_validate(world.sums.jobs.get().spec).environment


@pytest.mark.parametrize("knob", environments.tool_knobs(), ids=lambda knob: knob.path)
def test_each_field_of_a_tool_loop_is_explained(knob: Any) -> None:
    assert (knob.path in environments._WORDS, knob.help.endswith(".")) == (True, True)


def test_every_field_of_a_tool_loop_is_on_the_form() -> None:
    offered = {path.removeprefix("environment.").partition(".")[0] for path in environments._WORDS}
    assert offered == set(Tools.model_fields) - {"type"}


def test_a_form_that_says_nothing_asks_for_a_single_turn(world: World) -> None:
    assert environment_of(world).type == "single_turn"


def test_limits_of_tools_count_only_where_tools_are_chosen(world: World) -> None:
    assert environment_of(world, **{**SMALL, "environment.type": "single_turn"}).type == "single_turn"


def test_a_tool_loop_has_what_was_typed_and_the_specs_defaults(world: World) -> None:
    found = environment_of(world, **SMALL, **{"environment.max_calls": "3", "environment.search.results": "2"})

    assert found == Tools(type="tools", tools=("search", "python"), max_calls=3, max_tokens=64, search={"results": 2})


def test_a_dataset_of_articles_can_be_searched_and_a_copy_searches_it_too(world: World) -> None:
    corpus = create_dataset(world.sums, world.alice, "articles", jsonl(*ARTICLES))
    source = {"environment.search.source": f"corpus:{corpus.public_id}"}

    assert environment_of(world, **SMALL, **source).search.source.blob == corpus.ref().train
    copy = world.client(world.alice).get(f"/jobs/new/?from={world.sums.jobs.get().public_id}").context["form"]
    assert copy["environment.type"].value() == "tools"
    assert copy["environment.search.source"].value() == f"corpus:{corpus.public_id}"
    assert copy["environment.max_tokens"].value() == 64


@pytest.mark.parametrize(
    ("environment", "told"),
    [({"type": "single_turn"}, False), ({"type": "stand_in", "latency": {"median_seconds": 0.1}, "answer_turn": False}, True)],
)
def test_a_copy_says_when_the_form_cannot_keep_the_environment(world: World, environment: dict[str, Any], told: bool) -> None:
    page = world.client(world.alice).get(f"/jobs/new/?from={world.job(environment=environment).public_id}")

    assert page.context["environment"] == "single_turn"
    assert ("only the API offers" in page.content.decode()) is told


def test_nobody_searches_another_tenants_articles(world: World) -> None:
    foreign = create_dataset(world.other, world.charlie, "articles", jsonl(*ARTICLES))
    source = {"environment.search.source": f"corpus:{foreign.public_id}"}
    answer = world.client(world.alice).post("/jobs/new/", order(world, **SMALL, **source))

    assert answer.status_code == 422
    assert "Select a valid choice" in " ".join(answer.context["form"].errors["environment.search.source"])


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("environment.max_calls", "0", "greater than or equal to 1"),
        ("environment.max_turns", "1", "greater than or equal to 2"),
        ("environment.call_seconds", "500", "less than or equal to 120"),
        ("environment.tools", ["oracle"], "not one of the available choices"),
    ],
)
def test_a_refused_limit_is_told_at_its_field_and_the_fields_are_shown(world: World, field: str, value: Any, message: str) -> None:
    answer = world.client(world.alice).post("/jobs/new/", order(world, **{**SMALL, field: value}))

    assert answer.status_code == 422
    assert message in " ".join(answer.context["form"].errors[field])
    assert re.search(r'id="tool-fields"(?! hidden)', answer.content.decode())


def test_the_operators_wikis_are_offered(world: World) -> None:
    world_form = environments.fields(world.sums, [TINY.model_copy(update={"search_endpoints": ("enwiki",)})])

    assert ("endpoint:enwiki", "enwiki · wiki") in world_form["environment.search.source"].choices


def test_the_papers_three_workloads_have_its_settings() -> None:
    sizes = {
        key: [presets.find(key).values[f"rollout.{name}"] for name in ("prompts_per_step", "group_size", "max_new_tokens")]
        for key in ("gsm8k", "amc12", "wiki")
    }
    assert sizes == {"gsm8k": [64, 8, 2048], "amc12": [32, 8, 4096], "wiki": [32, 8, 1024]}
    assert (presets.find("wiki").values["environment.max_calls"], presets.find("wiki").values["environment.tools"]) == (5, ["search"])


@pytest.mark.parametrize("preset", presets.PRESETS, ids=lambda preset: preset.key)
def test_each_preset_fills_fields_of_the_form_with_what_the_spec_takes(world: World, preset: presets.Preset) -> None:
    large = TINY.model_copy(update={"max_context_tokens": 8192})
    world_form = world.client(world.alice).get(f"/jobs/new/?preset={preset.key}").context

    assert set(preset.values) <= set(world_form["form"].fields)
    assert world_form["environment"] == preset.values["environment.type"]
    assert preset.obstacle([large]) is None


def test_a_preset_counts_turns_and_tool_answers_into_its_context() -> None:
    assert presets.find("wiki").context_tokens == 512 + 1024 + 5 * 256
    assert presets.find("almanac").context_tokens == 160 + 2 * 16 + 64


def test_the_search_sample_fits_the_bundled_model() -> None:
    """Of which a character is a token."""
    config = json.loads((Path(engine.__file__).parent / "models/tiny_math/config.json").read_text())
    small = presets.find("almanac")
    longest = max(len(question.question) for question in almanac.questions()) + len(small.values["environment.instructions"])

    assert longest <= small.values["rollout.max_prompt_tokens"]
    assert small.context_tokens <= config["max_position_embeddings"]


def test_the_search_sample_leads_to_a_job_that_only_has_to_be_started(world: World) -> None:
    context = world.client(world.alice).post("/sample/", {"sample": "search"}, follow=True).context

    assert (context["chosen"], context["environment"]) == ("almanac", "tools")
    dataset = world.sums.datasets.get(public_id=context["form"]["dataset"].value())
    assert dataset.rows == 104
    assert context["form"]["reward"].value() == world.sums.rewards.get().public_id


def test_the_run_page_has_a_place_for_tools_only_where_the_job_has_some(world: World) -> None:
    plain, agent = world.job(), world.job(environment={"type": "tools", "tools": ["python"], "max_tokens": 64})
    pages = [world.client(world.alice).get(f"/jobs/{job.public_id}/").content.decode() for job in (plain, agent)]

    assert ['id="tools"' in page for page in pages] == [False, True]
    assert "python; at most 5 calls" in pages[1]
