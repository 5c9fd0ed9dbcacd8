"""A test that commits leaves nothing to the next, and takes nothing from it."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.test import Client

from portal.billing import ledger
from portal.billing.models import Plan, Price
from tests.portal.world import NOW, World
from tests.support.sweeping import KEPT, sweep

FRESH = {"billing_plan": 1, "billing_price": 6}


def counts() -> dict[str, int]:
    """Rows of each table that has some."""
    models = [model for model in apps.get_models(include_auto_created=True) if model._meta.managed and model._meta.db_table not in KEPT]
    found = {model._meta.db_table: model._base_manager.count() for model in models}
    return {table: count for table, count in found.items() if count}


@pytest.mark.django_db
def test_a_fresh_installation_has_a_plan_and_prices_and_nothing_else() -> None:
    assert counts() == FRESH


@pytest.mark.django_db(transaction=True)
def test_what_was_committed_is_gone_and_what_an_installation_begins_with_is_as_it_was(world: World, client: Client) -> None:
    client.force_login(world.alice)
    ledger.account_of(world.job().tenant, NOW)
    Plan.objects.update(running_jobs=1)
    Price.objects.create(model="", kind="sampled", micros_per_million=7, effective_from=NOW, set_by="a test")
    assert len(counts()) > 10
    sweep()
    assert counts() == FRESH
    assert (Plan.objects.get().running_jobs, Price.objects.get(kind="sampled").micros_per_million) == (64, 400_000)
