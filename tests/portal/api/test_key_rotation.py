"""What is sealed or hashed under the site's key stays good while that key is among the earlier ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from rest_framework.response import Response

from portal.api.idempotency import Replayed, claim
from portal.notices.models import Notice
from tests.portal.world import NOW, World


def replace_key(settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "n" * 60


def test_an_answer_is_given_again_after_the_key_was_replaced(world: World, settings: Any) -> None:
    claim(world.sums, "once", "digest").keep(Response({"id": "a"}, status=201))
    replace_key(settings)
    with pytest.raises(Replayed) as again:
        claim(world.sums, "once", "digest")
    assert (again.value.response.status_code, again.value.response.data) == (201, {"id": "a"})


def test_a_token_still_opens_the_door_after_the_key_was_replaced(world: World, settings: Any) -> None:
    api = world.api(world.bob, now=datetime.now(UTC))
    replace_key(settings)
    assert api.get("/api/v1/jobs/").status_code == 200


def test_a_rewards_secret_is_still_its_own_after_the_engines_was_replaced(world: World, settings: Any) -> None:
    from portal.rewards import secrets

    tenant = str(world.sums.pk)
    kept = secrets.sealed(tenant, {"signing_secret": "a secret of some length"}, [])
    settings.ENGINE_SECRET_FALLBACKS, settings.ENGINE_SECRET = (settings.ENGINE_SECRET,), "another"
    problems: list[tuple[str, str]] = []
    assert secrets.sealed(tenant, kept, problems) == kept
    assert problems == []


def test_webhooks_are_still_signed_after_the_engines_was_replaced(world: World, settings: Any) -> None:
    from portal.notices import webhooks

    webhook, secret = webhooks.create_webhook(world.sums, world.alice, "https://hooks.example.org/")
    notice = Notice(job=world.job(), kind="job.ended", at=NOW)
    settings.ENGINE_SECRET_FALLBACKS, settings.ENGINE_SECRET = (settings.ENGINE_SECRET,), "another"
    signed = webhooks.headers(webhook, notice, b"{}", NOW)["webhook-signature"]
    assert signed == webhooks.signature(secret, notice.public_id, str(int(NOW.timestamp())), b"{}")
