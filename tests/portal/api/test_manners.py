"""What every answer of the API has: an id, what is left of the limits; and one effect for one key."""

from __future__ import annotations

import io
import threading
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from portal.api import idempotency
from portal.api.limits import PerToken
from portal.api.models import Reply
from portal.rewards.models import Reward
from tests.portal.api.test_api import V1, error, post
from tests.portal.world import NOW, World, additions

REWARD = {"name": "exact", "grader": {"type": "math"}}
KEY = {"Idempotency-Key": "k-1"}


@pytest.fixture(autouse=True)
def one_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PerToken, "clock", lambda self=None: NOW)


def test_each_answer_has_an_id_of_ours(world: World) -> None:
    api = world.api(world.bob)
    first, second = (api.get(f"{V1}/me/", headers={"X-Request-Id": "mine"})["X-Request-Id"] for _ in range(2))
    assert first.startswith("req_")
    assert first != second
    assert Client().get("/nowhere/")["X-Request-Id"].startswith("req_")


def test_the_answers_say_what_is_left_and_the_last_one_when_to_come_again(world: World, settings: Any) -> None:
    settings.API_CALLS_PER_MINUTE = {"token": 2, "tenant": 100}
    api = world.api(world.bob)
    left = [api.get(f"{V1}/me/")["X-RateLimit-Remaining"] for _ in range(2)]
    refused = api.get(f"{V1}/me/")
    assert left == ["1", "0"]
    assert (error(refused, 429)["type"], refused["Retry-After"], refused["X-RateLimit-Limit"]) == ("rate_limit", "60", "2")
    assert world.api(world.bob).get(f"{V1}/me/").status_code == 200  # another token of the same person


def test_an_organisations_tokens_share_its_limit(world: World, settings: Any) -> None:
    settings.API_CALLS_PER_MINUTE = {"token": 100, "tenant": 3}
    answers = [world.api(user).get(f"{V1}/me/") for user in (world.bob, world.alice, world.vera, world.bob)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[2]["X-RateLimit-Tenant-Remaining"] == "0"
    assert world.api(world.charlie).get(f"{V1}/me/").status_code == 200


def test_the_next_minute_begins_anew(world: World, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.API_CALLS_PER_MINUTE = {"token": 1, "tenant": 100}
    api = world.api(world.bob)
    assert [api.get(f"{V1}/me/").status_code for _ in range(2)] == [200, 429]
    monkeypatch.setattr(PerToken, "clock", lambda self=None: NOW.replace(minute=NOW.minute + 1))
    assert api.get(f"{V1}/me/").status_code == 200


def test_a_cache_that_is_down_closes_nothing(world: World, settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}}
    assert world.api(world.bob).get(f"{V1}/me/").status_code == 200


def test_one_key_makes_one_thing_and_gives_one_answer(world: World) -> None:
    api = world.api(world.bob)
    answers = [post(api, "/rewards/", REWARD, **KEY) for _ in range(10)]
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.content for answer in answers}) == Reward.objects.count() == 1
    assert answers[1]["Idempotent-Replayed"] == "true"


def test_a_key_with_another_body_is_a_conflict(world: World) -> None:
    api = world.api(world.bob)
    post(api, "/rewards/", REWARD, **KEY)
    assert error(post(api, "/rewards/", {**REWARD, "name": "other"}, **KEY), 409)["param"] == "Idempotency-Key"
    error(post(api, "/tokens/", {"name": "x"}, **KEY), 409)


def test_a_key_is_the_tenants_own(world: World) -> None:
    mine = post(world.api(world.bob), "/rewards/", REWARD, **KEY).json()
    theirs = post(world.api(world.charlie), "/rewards/", {**REWARD, "name": "theirs"}, **KEY)
    assert (theirs.status_code, theirs.json()["id"] == mine["id"]) == (201, False)


def test_a_refusal_leaves_the_key_free(world: World) -> None:
    api = world.api(world.bob)
    error(post(api, "/rewards/", {"name": "x"}, **KEY), 400)
    assert post(api, "/rewards/", REWARD, **KEY).status_code == 201


def test_a_file_counts_by_its_content(world: World) -> None:
    api = world.api(world.bob)

    def upload(rows: int) -> Any:
        return api.post(f"{V1}/datasets/", {"name": "sums", "file": additions(rows)}, headers=KEY)

    first, second = upload(40), upload(40)
    assert (first.status_code, first.json()["id"]) == (201, second.json()["id"])
    error(upload(41), 409)


def test_a_secret_in_a_kept_answer_is_sealed_with_the_key_that_is_not_kept(world: World) -> None:
    api = world.api(world.bob)
    first, second = (post(api, "/tokens/", {"name": "x"}, **KEY).json() for _ in range(2))
    assert first["token"] == second["token"]
    kept = str(Reply.objects.values())
    assert (first["token"] in kept, KEY["Idempotency-Key"] in kept) == (False, False)


def test_an_answer_is_kept_for_a_day(world: World) -> None:
    held = idempotency.claim(world.sums, "k", "d", clock=lambda: NOW)
    with pytest.raises(idempotency.InProgress):
        idempotency.claim(world.sums, "k", "d", clock=lambda: NOW, wait_seconds=0)
    assert idempotency.claim(world.sums, "k", "d", clock=lambda: NOW + idempotency.KEPT * 2) is not held


def test_a_worker_that_died_holds_its_key_for_its_lease_only(world: World) -> None:
    idempotency.claim(world.sums, "k", "d", clock=lambda: NOW)
    assert idempotency.claim(world.sums, "k", "d", clock=lambda: NOW + idempotency.LEASE * 2, wait_seconds=0)


def test_a_key_too_long_is_named(world: World) -> None:
    assert error(post(world.api(world.bob), "/rewards/", REWARD, **{"Idempotency-Key": "k" * 201}), 400)["param"] == "Idempotency-Key"


@pytest.mark.django_db(transaction=True)
def test_ten_at_once_with_one_key_have_one_effect(world: World) -> None:
    clients = [world.api(world.bob) for _ in range(10)]
    answers: list[Any] = [None] * 10

    def send(n: int) -> None:
        try:
            answers[n] = post(clients[n], "/rewards/", REWARD, **KEY)
        finally:
            connection.close()

    threads = [threading.Thread(target=send, args=(n,)) for n in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["id"] for answer in answers}) == Reward.objects.count() == 1


def test_what_is_uploaded_under_a_key_is_read_whole_after_the_digest(world: World) -> None:
    file = io.BytesIO(additions(40).read())
    file.name = "rows.jsonl"
    answer = world.api(world.bob).post(f"{V1}/datasets/", {"name": "sums", "file": file}, headers=KEY)
    assert answer.json()["rows"] == 40
