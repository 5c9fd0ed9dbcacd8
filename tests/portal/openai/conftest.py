from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tenants import tokens
from tests.portal.openai.callers import Caller
from tests.portal.world import World


@pytest.fixture
def token(world: World) -> str:
    """Bob's."""
    return tokens.issue(world.sums, world.bob, "test", datetime.now(UTC))[1]


@pytest.fixture
def client(token: str) -> Caller:
    return Caller(token)


@pytest.fixture
def job(world: World, engine: Any) -> Any:
    """A job of Alice's three steps on."""
    from portal.jobs.models import Job

    found = world.job()
    Job.objects.filter(pk=found.pk).update(version=3)
    found.refresh_from_db()
    return found
