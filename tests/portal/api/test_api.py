from __future__ import annotations

import io
import zipfile
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from portal.jobs import delivery
from portal.jobs.models import Job, JobEvent
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World, additions, jsonl

V1 = "/api/v1"
DAY = timedelta(days=1)


def error(response: Any, status: int) -> dict:
    assert response.status_code == status, response.content
    body = response.json()["error"]
    assert body.keys() == {"message", "type", "param", "code", "problems"}
    return body


def post(client: Client, path: str, body: Any = None, **headers: str) -> Any:
    return client.post(V1 + path, body or {}, content_type="application/json", headers=headers or None)


def test_a_whole_job_by_token(world: World, engine: FakeEngine) -> None:
    api = world.api(world.bob)
    dataset = api.post(f"{V1}/datasets/", {"name": "sums", "file": additions(40)}).json()
    reward = post(api, "/rewards/", {"name": "exact", "grader": {"type": "string_check"}}).json()
    order = {"dataset": dataset["id"], "reward": reward["id"], "base_model": "tiny-math"}
    job = post(api, "/jobs/", order).json()
    assert (job["state"], job["name"], job["spec"]["train"]["steps"]) == ("submitted", "exact on sums", 30)
    assert api.get(f"{V1}/jobs/{job['id']}/").json() == job
    assert [found["id"] for found in api.get(f"{V1}/jobs/").json()["results"]] == [job["id"]]


def test_me_says_who_where_and_what_for(world: World) -> None:
    answer = world.api(world.bob).get(f"{V1}/me/").json()
    assert (answer["email"], answer["tenant"]["id"], answer["role"]) == ("bob@example.org", world.sums.public_id, "member")


def test_models_are_listed(world: World) -> None:
    assert world.api(world.bob).get(f"{V1}/models/").json()["models"][0]["name"] == "tiny-math"


def test_without_a_token_nothing_opens(world: World) -> None:
    answer = Client().get(f"{V1}/jobs/")
    assert error(answer, 401)["type"] == "authentication"
    assert answer["WWW-Authenticate"].startswith("Bearer")


def test_an_expired_token_says_that_it_expired(world: World) -> None:
    api = world.api(world.bob, now=datetime.now(UTC) - 91 * DAY)
    assert error(api.get(f"{V1}/jobs/"), 401)["code"] == "token_expired"


@pytest.mark.parametrize("header", ["Bearer", "Bearer x", "Bearer a b", "bearer mrl_" + "a" * 60, "Bearer \xff"])
def test_a_broken_token_is_refused(world: World, header: str) -> None:
    assert error(Client(headers={"Authorization": header}).get(f"{V1}/jobs/"), 401)["code"] == "token_malformed"


def test_a_token_without_the_scope_is_refused(world: World) -> None:
    api = world.api(world.bob, scopes=("jobs:read",))
    assert api.get(f"{V1}/jobs/").status_code == 200
    assert "jobs:write" in error(post(api, "/jobs/", {}), 403)["message"]
    assert "datasets:read" in error(api.get(f"{V1}/datasets/"), 403)["message"]


def test_a_viewer_reads_and_does_not_write(world: World) -> None:
    api = world.api(world.vera)
    assert api.get(f"{V1}/jobs/").status_code == 200
    error(post(api, "/jobs/", world.order()), 403)


def test_a_session_needs_the_csrf_token_to_write(world: World) -> None:
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(world.alice)
    assert browser.get(f"{V1}/jobs/").status_code == 200
    assert "CSRF" in error(post(browser, "/rewards/", {}), 403)["message"]


@pytest.mark.parametrize("path", ["/jobs", "/datasets", "/me"])
def test_the_last_slash_may_be_left_out(world: World, path: str) -> None:
    assert world.api(world.bob).get(V1 + path).status_code == 200


def test_a_post_without_the_last_slash_keeps_its_body(world: World) -> None:
    answer = post(world.api(world.bob), "/rewards", {"name": "x", "grader": {"type": "math"}})
    assert (answer.status_code, answer.json()["grader"]["type"]) == (201, "math")


@pytest.mark.parametrize("path", ["/nothing", "/jobs/job_aaaaaaaaaaaaaaaaaaaa/", "/jobs/JOB!/", "/datasets/ds_x/"])
def test_what_is_not_there_is_a_404_in_the_one_shape(world: World, path: str) -> None:
    assert error(world.api(world.bob).get(V1 + path), 404)["type"] == "not_found"


def test_a_refused_job_names_its_fields(world: World) -> None:
    body = error(post(world.api(world.bob), "/jobs/", world.order(rollout={"group_size": 0}, lora={"rank": 0})), 400)
    assert {problem["field"] for problem in body["problems"]} == {"rollout.group_size", "lora.rank"}
    assert body["param"] in ("rollout.group_size", "lora.rank")


def test_what_is_no_number_is_refused_by_its_field(world: World) -> None:
    order = world.order(lora={"rank": True}, train={"steps": "8"}, seed="7")
    body = error(post(world.api(world.bob), "/jobs/", order), 400)
    assert {problem["field"] for problem in body["problems"]} == {"lora.rank", "train.steps", "seed"}
    assert "Input should be a valid number, not true" in {problem["message"] for problem in body["problems"]}


BODIES = [
    (b"{broken", 400, "JSON"),
    (b"\xff", 400, "JSON"),
    (b'{"name": NaN}', 400, "JSON"),
    (b'{"name": "\\ud800"}', 400, "JSON"),
    (b'{"name": "a\\u0000b"}', 400, "NUL"),
    (b'{"name": "a", "seed": 1, "name": "b"}', 400, "name: stands twice"),
    (b'{"spec": [{"train": {"steps": 1, "\\u0073teps": 2}}]}', 400, "steps: stands twice"),
    (b"[" * 100_000 + b"]" * 100_000, 400, "deep"),
    (b'"' + b"x" * (1 << 20) + b'"', 413, "1,048,576"),
]


@pytest.mark.parametrize(("body", "status", "word"), BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("path", ["/jobs/", "/rewards/"])
def test_a_broken_body_is_a_clear_error(world: World, path: str, body: bytes, status: int, word: str) -> None:
    answer = world.api(world.bob).post(V1 + path, body, content_type="application/json")
    assert word in error(answer, status)["message"]


@pytest.mark.parametrize("body", [[], 7, None, "text", {"name": {}}, {"name": "x", "grader": [[[]]]}])
def test_a_reward_of_the_wrong_shape_is_refused(world: World, body: Any) -> None:
    import json

    error(world.api(world.bob).post(f"{V1}/rewards/", json.dumps(body), content_type="application/json"), 400)


def test_a_nul_in_the_address_is_refused(world: World) -> None:
    assert world.api(world.bob).get(f"{V1}/jobs/%00/").status_code == 400
    assert world.client(world.bob).get("/jobs/?q=%00").status_code == 400


def test_a_broken_file_names_its_line(world: World) -> None:
    answer = world.api(world.bob).post(f"{V1}/datasets/", {"name": "x", "file": jsonl({"prompt": "x"}, "{broken")})
    body = error(answer, 400)
    assert (body["param"], "line 2" in body["message"]) == ("file", True)


def test_a_dataset_without_a_file_is_refused(world: World) -> None:
    assert error(world.api(world.bob).post(f"{V1}/datasets/", {"name": "x"}), 400)["param"] == "file"


def test_the_wrong_content_type_is_refused(world: World) -> None:
    error(world.api(world.bob).post(f"{V1}/jobs/", "x=1", content_type="application/x-www-form-urlencoded"), 415)


def test_an_idempotency_key_gives_the_same_job(world: World) -> None:
    api, order = world.api(world.bob), world.order()
    first, second = (post(api, "/jobs/", order, **{"Idempotency-Key": "k1"}).json() for _ in range(2))
    assert (first["id"], Job.objects.count()) == (second["id"], 1)
    assert error(post(api, "/jobs/", {**order, "seed": 5}, **{"Idempotency-Key": "k1"}), 409)["type"] == "conflict"


def test_cancel_is_accepted_and_changes_nothing_yet(world: World) -> None:
    job = world.job()
    answer = post(world.api(world.bob), f"/jobs/{job.public_id}/cancel/")
    assert (answer.status_code, answer.json()["state"]) == (202, "submitted")
    assert job.commands.get().kind == "cancel"


def test_resuming_a_job_that_is_not_paused_is_a_conflict(world: World) -> None:
    error(post(world.api(world.bob), f"/jobs/{world.job().public_id}/resume/"), 409)


@pytest.mark.parametrize("answered", [False, True], ids=["on its way", "accepted by the engine"])
@pytest.mark.parametrize("wish", ["pause", "resume"])
def test_a_job_that_is_being_stopped_can_be_neither_paused_nor_resumed(world: World, wish: str, answered: bool) -> None:
    job, api = world.job(), world.api(world.bob)
    Job.objects.filter(pk=job.pk).update(state="paused" if wish == "resume" else "running")
    post(api, f"/jobs/{job.public_id}/cancel/")
    job.commands.update(answered_at=NOW if answered else None)
    assert f"asked to stop, so it cannot be {wish}d" in error(post(api, f"/jobs/{job.public_id}/{wish}/"), 409)["message"]
    assert post(api, f"/jobs/{job.public_id}/cancel/").status_code == 202
    assert {command.kind for command in job.commands.all()} == {"cancel"}


def test_a_stop_that_the_engine_refused_stands_in_no_way(world: World) -> None:
    job, api = world.job(), world.api(world.bob)
    post(api, f"/jobs/{job.public_id}/cancel/")
    job.commands.update(answered_at=NOW, last_error="no such job")
    assert post(api, f"/jobs/{job.public_id}/pause/").status_code == 202


def test_events_come_after_a_number_and_page(world: World) -> None:
    job = world.job()
    for seq in range(1, 6):
        JobEvent.objects.create(tenant=job.tenant, job=job, seq=seq, kind="x", at=NOW)
    url = f"{V1}/jobs/{job.public_id}/events/"
    answer = world.api(world.bob).get(url, {"after": 2, "limit": 2}).json()
    assert ([e["seq"] for e in answer["events"]], answer["last"]) == ([3, 4], 4)
    assert world.api(world.bob).get(url, {"after": 5}).json() == {"events": [], "last": 5}


@pytest.mark.parametrize("after", ["x", "-1", "1.5", "9" * 30])
def test_a_bad_event_number_is_named(world: World, after: str) -> None:
    answer = world.api(world.bob).get(f"{V1}/jobs/{world.job().public_id}/events/", {"after": after})
    assert error(answer, 400)["param"] == "after"


def test_lists_page_by_cursor(world: World) -> None:
    for _ in range(3):
        world.reward()
    api = world.api(world.bob)
    first = api.get(f"{V1}/rewards/", {"limit": 2}).json()
    world.reward()  # what is added while paging shifts no page
    second = api.get(first["next"]).json()
    names = [row["id"] for row in first["results"] + second["results"]]
    assert (len(names), len(set(names)), second["next"]) == (3, 3, None)


def trained_job(world: World, engine: FakeEngine) -> Job:
    job = world.job()
    delivery.deliver(job.pk, NOW)
    engine.emit(job.public_id, "step", version=1)
    return job


def test_an_adapter_comes_as_an_archive(world: World, engine: FakeEngine) -> None:
    job = trained_job(world, engine)
    answer = world.api(world.bob).get(f"{V1}/jobs/{job.public_id}/adapters/latest/")
    assert (answer["X-Policy-Version"], answer["Content-Type"]) == ("1", "application/zip")
    assert f"{job.public_id}-v1.zip" in answer["Content-Disposition"]
    names = zipfile.ZipFile(io.BytesIO(b"".join(answer.streaming_content))).namelist()
    assert names == ["adapter_config.json", "adapter_model.safetensors"]


def test_a_version_that_is_not_there_is_a_404(world: World, engine: FakeEngine) -> None:
    error(world.api(world.bob).get(f"{V1}/jobs/{trained_job(world, engine).public_id}/adapters/7/"), 404)


def test_a_download_while_the_engine_is_down_says_so(world: World, engine: FakeEngine) -> None:
    job = trained_job(world, engine)
    engine.down = True
    answer = world.api(world.bob).get(f"{V1}/jobs/{job.public_id}/adapters/1/")
    assert error(answer, 503)["code"] == "engine_down"
    assert answer["Retry-After"]


def test_the_schema_is_complete(db: None, capsys: pytest.CaptureFixture) -> None:
    from django.core.management import call_command

    call_command("spectacular", "--validate", "--fail-on-warn")
    assert "/api/v1/jobs/{public_id}/cancel/" in capsys.readouterr().out
