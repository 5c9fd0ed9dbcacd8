from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from engine.grader_spec import TYPES
from portal.rewards.models import LabRun
from tests.portal.fake_engine import FakeEngine
from tests.portal.rewards.examples import SECRET, grader
from tests.portal.rewards.trials import CORPUS, SUBSTRING, rows, typed
from tests.portal.world import World

JSON = {"content_type": "application/json"}


@pytest.fixture
def api(world: World) -> Client:
    return world.api(world.alice)


def made(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 201, answer.content
    return answer.json()


@pytest.mark.parametrize("type", TYPES)
def test_a_grader_that_could_be_stored_is_valid(api: Client, type: str) -> None:
    answer = api.post("/api/v1/rewards/validate/", {"grader": grader(type)}, **JSON).json()
    assert (answer["valid"], answer["grader"]["type"], answer["problems"]) == (True, type, [])
    assert SECRET not in str(answer)


def test_a_bad_source_is_told_with_its_line(api: Client) -> None:
    bad = grader("python", source="def grade(sample, item):\n    return 1 +\n")
    answer = api.post("/api/v1/rewards/validate/", {"grader": bad}, **JSON).json()
    assert (answer["valid"], answer["problems"][0]["field"], answer["problems"][0]["line"]) == (False, "grader.source", 2)


def test_a_stored_reward_is_tried(api: Client, world: World) -> None:
    reward, dataset = world.reward(), world.dataset()
    run = made(api.post(f"/api/v1/rewards/{reward.public_id}/run/", rows(dataset, repeats=2), **JSON))
    assert (run["state"], run["reward"], run["figures"]["mean"], run["figures"]["differing"]) == ("succeeded", reward.public_id, 1.0, 0)
    page = api.get(f"/api/v1/reward-runs/{run['id']}/cases/?limit=2").json()
    assert ([case["number"] for case in page["cases"]], page["next"]) == ([0, 1], 1)
    assert [outcome["reward"] for outcome in page["cases"][0]["outcomes"]] == [1.0, 1.0]
    assert api.get(f"/api/v1/reward-runs/{run['id']}/cases/?after=1").json()["next"] is None


def test_what_is_not_stored_is_tried_too(api: Client) -> None:
    run = made(api.post("/api/v1/rewards/run/", {"grader": {"type": "numeric"}, **typed("41")}, **JSON))
    assert (run["figures"]["mean"], run["reward"]) == (0.0, None)


def test_the_corpus_is_run_and_counted_by_kind(api: Client) -> None:
    run = made(api.post("/api/v1/rewards/run/", {"grader": SUBSTRING, **CORPUS}, **JSON))
    kinds = {kind["kind"]: kind for kind in run["kinds"]}
    assert run["total"] >= 80
    assert kinds["shotgun"]["false_accepts"]
    lenient = api.get(f"/api/v1/reward-runs/{run['id']}/?accept_from=2").json()
    assert not any(kind["false_accepts"] for kind in lenient["kinds"])


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "grader"),
        ({"grader": {"type": "numeric"}}, "on"),
        ({"grader": {"type": "numeric", "speed": 1}, **typed()}, "grader.speed"),
        ({"grader": {"type": "numeric"}, **typed(), "speed": 1}, "speed"),
        ({"grader": {"type": "numeric"}, "on": {"type": "text", "samples": []}}, "on.samples"),
        ([], "grader"),
    ],
)
def test_a_bad_request_names_its_field(api: Client, body: Any, param: str) -> None:
    refused = api.post("/api/v1/rewards/run/", body, **JSON)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)
    assert not LabRun.objects.exists()


def test_a_run_is_stopped(api: Client, world: World) -> None:
    run = made(api.post("/api/v1/rewards/run/", {"grader": {"type": "numeric"}, **typed()}, **JSON))
    LabRun.objects.update(state="running")
    stopped = api.post(f"/api/v1/reward-runs/{run['id']}/stop/")
    assert (stopped.status_code, stopped.json()["state"]) == (202, "stopped")


def test_an_engine_that_is_down_is_told_in_the_run(api: Client, engine: FakeEngine) -> None:
    engine.down = True
    run = made(api.post("/api/v1/rewards/run/", {"grader": {"type": "numeric"}, **typed()}, **JSON))
    assert (run["state"], "does not answer" in run["note"]) == ("failed", True)


def test_trying_needs_the_scope_to_write(world: World) -> None:
    reader = world.api(world.alice, scopes=["rewards:read"])
    assert reader.post("/api/v1/rewards/run/", {"grader": {"type": "numeric"}, **typed()}, **JSON).status_code == 403
    assert world.api(world.bob).post("/api/v1/rewards/run/", {"grader": {"type": "numeric"}, **typed()}, **JSON).status_code == 201


def test_the_schema_tells_of_the_lab(client: Client) -> None:
    paths = client.get("/api/schema/?format=json").json()["paths"]
    assert {"/api/v1/rewards/validate/", "/api/v1/rewards/run/", "/api/v1/rewards/{public_id}/run/"} <= paths.keys()
    assert {"/api/v1/reward-runs/{public_id}/", "/api/v1/reward-runs/{public_id}/cases/"} <= paths.keys()
    body = paths["/api/v1/rewards/run/"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["required"]) == {"grader", "on"}
