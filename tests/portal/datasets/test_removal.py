"""Deleting a dataset: for good, and only what nothing needs."""

from __future__ import annotations

import pytest
from django.test import Client

from portal.datasets.models import Dataset
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import World


def delete(api: Client, dataset: Dataset) -> int:
    return api.delete(f"/api/v1/datasets/{dataset.public_id}/").status_code


def test_a_member_deletes_and_the_log_says_so(world: World) -> None:
    dataset = world.dataset()
    assert delete(world.api(world.vera), dataset) == 403
    assert delete(world.api(world.charlie), dataset) == 404
    assert delete(world.api(world.bob), dataset) == 204
    assert delete(world.api(world.bob), dataset) == 404
    assert world.sums.audit.get(action="dataset.deleted").target == dataset.public_id


@pytest.mark.parametrize("kind", ["job", "probe"])
def test_what_is_needed_stays(world: World, engine: FakeEngine, kind: str) -> None:
    dataset = getattr(world, kind)().dataset
    assert delete(world.api(world.bob), dataset) == 409
    assert Dataset.objects.filter(pk=dataset.pk).exists()
