"""A search corpus is a dataset of the tenant's own; a blob is nothing that anybody may name."""

from __future__ import annotations

from typing import Any

import pytest

from portal.datasets.actions import create_dataset
from portal.errors import Invalid
from portal.jobs import door
from tests.portal.world import NOW, World, jsonl

ARTICLES = [{"prompt": "-", "title": f"Moss {n}", "text": "grows on stones"} for n in range(20)]


def order(world: World, **source: Any) -> dict[str, Any]:
    search = {"source": {"type": "corpus", **source}}
    # So short that it fits the context of the fake engine's model.
    return world.order(
        environment={"type": "tools", "tools": ["search"], "search": search, "max_tokens": 32}, rollout={"max_prompt_tokens": 64}
    )


def problems(world: World, raw: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        door.check(world.sums, raw, NOW)
    return dict(refused.value.problems)


def test_the_dataset_becomes_the_blob_that_the_engine_searches(world: World) -> None:
    corpus = create_dataset(world.sums, world.alice, "articles", jsonl(*ARTICLES))

    spec = door.check(world.sums, order(world, dataset=corpus.public_id), NOW).spec

    assert spec.environment.search.source.blob == corpus.ref().train


def test_a_corpus_of_another_tenant_does_not_exist(world: World) -> None:
    foreign = create_dataset(world.other, world.charlie, "articles", jsonl(*ARTICLES))

    assert "of yours" in problems(world, order(world, dataset=foreign.public_id))["environment.search.source.dataset"]


def test_nobody_names_a_blob(world: World) -> None:
    foreign = create_dataset(world.other, world.charlie, "articles", jsonl(*ARTICLES)).ref().train.model_dump()

    assert "dataset" in problems(world, order(world, blob=foreign))["environment.search.source.blob"]


def test_a_corpus_has_titles_and_texts(world: World) -> None:
    found = problems(world, order(world, dataset=world.dataset().public_id))

    assert "no title and no text" in found["environment.search.source.dataset"]


@pytest.mark.parametrize("environment", [None, 7, {"type": "tools", "search": 7}, {"type": "tools", "search": {"source": "corpus"}}])
def test_an_environment_of_another_shape_is_refused_by_the_schema(world: World, environment: Any) -> None:
    assert any(field.startswith("environment") for field in problems(world, world.order(environment=environment)))
