from __future__ import annotations

import io
import re
import zipfile

import httpx
import pytest

from engine.service import create_app, zipped
from tests.engine.world import World

pytestmark = pytest.mark.asyncio
SECRET = "secret"
AUTH = {"Authorization": f"Bearer {SECRET}"}


def client_of(manager, **kwargs) -> httpx.AsyncClient:
    app = create_app(manager, SECRET, **kwargs)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://engine", headers=AUTH)


@pytest.fixture
async def client(world):
    async with client_of(world.manager) as client:
        yield client


class Unreachable:
    """A manager that has just died."""

    def __getattr__(self, name):
        async def method(*args, **kwargs):
            raise ConnectionError("gone")

        return method


# The wall


@pytest.mark.parametrize("header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic secret"}, {"Authorization": SECRET}])
@pytest.mark.parametrize("path", ["/status", "/openapi.json", "/jobs/job_a/adapters/latest", "/no-such-path"])
async def test_without_the_secret_nothing_is_said(world, path, header):
    async with client_of(world.manager) as client:
        client.headers = httpx.Headers(header)
        response = await client.get(path)
    assert response.status_code == 401
    assert response.json()["error"]["code"] == "unauthorized"


async def test_the_scrapers_token_opens_the_figures_and_nothing_else(world):
    async with client_of(world.manager, metrics_token="scrapes") as client:
        client.headers["Authorization"] = "Bearer scrapes"
        answers = [(await client.get(path)).status_code for path in ("/metrics", "/status", "/metrics/")]
        assert answers == [200, 401, 401]
        client.headers["Authorization"] = f"Bearer {SECRET}"
        assert (await client.get("/metrics")).status_code == 200


async def test_health_needs_no_secret(client):
    del client.headers["Authorization"]
    response = await client.get("/healthz")
    assert (response.status_code, response.json()) == (200, {"ok": True, "epoch": 1})


async def test_a_dead_manager_is_unhealthy():
    async with client_of(Unreachable()) as client:
        response = await client.get("/healthz")
    assert (response.status_code, response.json()["ok"]) == (503, False)


async def test_a_body_that_is_too_long_is_refused(world):
    async with client_of(world.manager, max_body_bytes=1000) as client:
        response = await client.put("/jobs/job_a", content=b"x" * 1001)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


async def test_an_empty_secret_is_no_secret(world):
    with pytest.raises(ValueError, match="empty"):
        create_app(world.manager, "").build_middleware_stack()


# Jobs


async def test_a_job_is_submitted_once(world, client):
    body = world.submission()
    assert (await client.put("/jobs/job_a", json=body)).json() == {"job": "job_a", "created": True}
    assert (await client.put("/jobs/job_a", json=body)).json() == {"job": "job_a", "created": False}
    other = await client.put("/jobs/job_a", json=world.submission(steps=9))
    assert (other.status_code, other.json()["error"]["code"]) == (409, "job_exists")


async def test_a_bad_submission_names_each_field(world, client):
    body = world.submission()
    body["spec"]["rollout"]["group_size"] = 0
    body["spec"]["train"]["steps"] = "many"
    response = await client.put("/jobs/job_a", json=body)
    problems = response.json()["error"]["problems"]
    assert response.status_code == 422
    assert {problem["field"] for problem in problems} == {"spec.rollout.group_size", "spec.train.steps"}


async def test_what_is_no_json_is_refused_in_the_same_words(client):
    response = await client.put("/jobs/job_a", content=b"{")
    assert response.status_code == 422
    assert response.json()["error"]["type"] == "invalid"


@pytest.mark.parametrize("order", ["cancel", "pause", "resume"])
async def test_orders_are_accepted_for_open_jobs_only(world, client, order):
    assert (await client.post(f"/jobs/job_a/{order}")).status_code == 404
    world.script.gate("rollout", "job_a")
    await world.submit("job_a")
    response = await client.post(f"/jobs/job_a/{order}", json={"reason": "because"})
    assert (response.status_code, response.json()) == (202, {"job": "job_a"})
    await client.post("/jobs/job_a/cancel")
    await world.ended("job_a")
    assert (await client.post(f"/jobs/job_a/{order}")).status_code == 409


async def test_an_unknown_order_is_refused(client):
    assert (await client.post("/jobs/job_a/explode")).status_code == 422


async def test_a_priority_is_a_whole_number_in_range(world, client):
    world.script.gate("rollout", "job_a")
    await world.submit("job_a")
    assert (await client.patch("/jobs/job_a", json={"priority": 5})).json() == {"job": "job_a", "priority": 5}
    for wrong in ({"priority": 101}, {"priority": "5"}, {"colour": 1}):
        assert (await client.patch("/jobs/job_a", json=wrong)).status_code == 422


async def test_an_ended_job_can_be_deleted(world, client):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    assert (await client.delete("/jobs/job_a")).status_code == 200
    assert (await client.get("/jobs/job_a/adapters/latest")).status_code == 404


async def test_an_adapter_is_a_zip_of_pefts_directory(world, client):
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    latest = await client.get("/jobs/job_a/adapters/latest")
    assert (latest.headers["X-Policy-Version"], latest.headers["content-type"]) == ("2", "application/zip")
    archive = zipfile.ZipFile(io.BytesIO((await client.get("/jobs/job_a/adapters/1")).content))
    assert archive.namelist() == ["adapter_config.json", "adapter_model.safetensors"]
    assert archive.read("adapter_model.safetensors").startswith(b"weights job_a@1:")


@pytest.mark.parametrize("version", ["9", "-1", "newest", "9" * 30, "²"])
async def test_an_unknown_version_is_not_found(world, client, version):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    assert (await client.get(f"/jobs/job_a/adapters/{version}")).status_code == 404


async def test_the_same_adapter_is_the_same_archive():
    assert zipped({"b": b"2", "a": b"1"}) == zipped({"a": b"1", "b": b"2"})


async def test_rollouts_come_in_pages(world, client):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    page = (await client.get("/jobs/job_a/rollouts", params={"version": 0, "offset": 2, "limit": 3})).json()
    assert (page["total"], len(page["trajectories"])) == (8, 3)


# The engine


async def test_events_are_read_by_cursor(world, client):
    await world.submit("job_a", steps=1)
    await world.ended("job_a")
    first = (await client.get("/events", params={"after": 0, "limit": 2})).json()
    assert ([event["seq"] for event in first["events"]], first["last"]) == ([1, 2], 2)
    rest = (await client.get("/events", params={"after": first["last"], "wait": 30})).json()
    assert [event["offset"] for event in rest["events"]] == list(range(3, rest["last"] + 1))


async def test_nobody_waits_longer_than_half_a_minute(client):
    assert (await client.get("/events", params={"wait": 31})).status_code == 422


async def test_the_status_names_what_the_portal_reads(client):
    status = (await client.get("/status")).json()
    read = {"engine", "epoch", "journal", "admission", "policy", "jobs", "kv", "rollouts", "sandbox", "slots", "disk", "sampler"}
    assert set(status) == {*read, "uptime_seconds"}
    assert 0 < status["disk"]["free_bytes"] < status["disk"]["total_bytes"]


async def test_models_and_their_tokenizer(client):
    assert [model["name"] for model in (await client.get("/models")).json()["models"]] == ["tiny"]
    assert (await client.get("/models/tiny/tokenizer")).json() == {}
    assert (await client.get("/models/owner/other/tokenizer")).json()["error"]["code"] == "model_not_found"


async def test_an_estimate_needs_a_whole_spec(world, client):
    assert (await client.post("/estimate", json=world.submission()["spec"])).json()["kv_bytes"] == 128
    assert (await client.post("/estimate", json={})).status_code == 422


async def test_admission_and_policy_can_be_changed(client):
    assert (await client.post("/admission/drain")).json() == {"admission": "drain"}
    assert (await client.post("/admission/shut")).status_code == 422
    assert (await client.patch("/policy", json={"max_active": 2})).json()["max_active"] == 2
    assert (await client.patch("/policy", json={"max_active": 0})).status_code == 422


async def test_the_status_is_there_for_prometheus(world, client):
    await world.submit("job_a", steps=2)
    await world.ended("job_a")
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'marlaas_jobs{state="succeeded"} 1\n' in response.text
    assert "marlaas_versions 2\n" in response.text
    assert 0 < float(re.search(r"^marlaas_disk_free_share (\S+)$", response.text, re.MULTILINE)[1]) < 1


async def test_the_sandboxs_tier_is_there_for_prometheus(tmp_path):
    world = World(tmp_path)
    await world.open(sandbox={"tier": "plain", "refused": {}})
    async with client_of(world.manager) as client:
        assert (await client.get("/status")).json()["sandbox"]["tier"] == "plain"
        assert 'marlaas_reward_sandbox{tier="plain"} 1\n' in (await client.get("/metrics")).text
    await world.manager.stop()


async def test_an_unknown_path_is_said_in_the_same_form(client):
    response = await client.get("/nowhere")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


async def test_an_error_of_the_engine_itself_hides_its_inside():
    async with client_of(Unreachable()) as client:
        response = await client.get("/status")
    assert (response.status_code, response.json()["error"]["code"]) == (500, "internal")
    assert "gone" not in response.text


async def test_the_schema_describes_every_route(client):
    schema = (await client.get("/openapi.json")).json()
    assert {"/jobs/{job}", "/events", "/models/{name}/tokenizer", "/metrics"} <= set(schema["paths"])


# Probes


async def test_a_probe_is_asked_for_followed_and_cancelled(client, world):
    world.script.gate("rollout", "probe/p1")
    order = {"probe": "p1", "tenant": "ten_a", "spec": world.submission()["spec"], "rows": 3}

    first, again = [await client.post("/probes", json=order) for _ in range(2)]
    assert (first.status_code, again.status_code, first.json()["total"]) == (202, 202, 6)
    assert (await client.post("/probes", json={**order, "rows": 4})).json()["error"]["code"] == "probe_exists"
    assert (await client.get("/probes/p1")).json()["state"] in ("waiting", "running")
    assert (await client.post("/probes/p1/cancel")).json()["state"] == "cancelled"


async def test_a_probe_without_a_name_or_one_that_nobody_began_is_refused(client, world):
    nameless = await client.post("/probes", json={"tenant": "ten_a", "spec": {}})
    unknown = await client.get("/probes/p9")

    assert (nameless.status_code, nameless.json()["error"]["problems"][0]["field"]) == (422, "probe")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "probe_not_found")


async def test_an_evaluation_comes_row_by_row(world, client):
    await world.submit("job_a", with_eval=True, steps=2)
    await world.ended("job_a")
    whole = (await client.get("/jobs/job_a/evaluations/latest")).json()
    assert (whole["version"], whole["against"], whole["total"]) == (2, 0, 4)
    page = (await client.get("/jobs/job_a/evaluations/2", params={"offset": 1, "limit": 2})).json()
    assert page["rows"] == whole["rows"][1:3]
    ties = (await client.get("/jobs/job_a/evaluations/2", params={"against": 2})).json()
    assert {row["change"] for row in ties["rows"]} == {"tie"}
    refused = [("1", {}, 404), ("x", {}, 404), ("2", {"change": "better"}, 422), ("2", {"limit": 0}, 422), ("2", {"against": 1}, 404)]
    for version, params, status in refused:
        assert (await client.get(f"/jobs/job_a/evaluations/{version}", params=params)).status_code == status
