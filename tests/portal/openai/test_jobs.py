"""Files, jobs, events, checkpoints and graders in OpenAI's shape, over the same actions as the pages."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from portal.datasets.models import Dataset
from portal.jobs import ingest
from portal.jobs.models import Job
from portal.openai import fields
from portal.rewards.models import Reward
from tests.portal import fake_script
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World, additions, jsonl

MULTI = {
    "type": "multi",
    "name": "both",
    "graders": {
        "exact": {
            "type": "string_check",
            "name": "exact",
            "input": "{{sample.output_text}}",
            "reference": "{{item.answer}}",
            "operation": "eq",
        },
        "close": {"type": "numeric", "name": "close"},
    },
    "calculate_output": "0.5 * exact + 0.5 * close",
}


@pytest.fixture
def api(world: World) -> Client:
    return world.api(world.bob)


def upload(api: Client, file: io.BytesIO | None = None, **more: Any) -> dict[str, Any]:
    answer = api.post("/v1/files", {"file": file or additions(40), "purpose": "fine-tune", **more})
    assert answer.status_code == 200, answer.content
    return answer.json()


def body(file: str, **changes: Any) -> dict[str, Any]:
    reinforcement = {"grader": changes.pop("grader", {"type": "string_check", "name": "exact"}), **changes.pop("reinforcement", {})}
    return {"model": "tiny-math", "training_file": file, "method": {"type": "reinforcement", "reinforcement": reinforcement}, **changes}


def create(api: Client, asked: dict[str, Any], **headers: str) -> Any:
    return api.post("/v1/fine_tuning/jobs", asked, content_type="application/json", headers=headers or None)


def made(api: Client, **changes: Any) -> dict[str, Any]:
    answer = create(api, body(upload(api)["id"], **changes))
    assert answer.status_code == 200, answer.content
    return answer.json()


def error(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    found = answer.json()["error"]
    assert found.keys() == {"message", "type", "param", "code"}
    return found


# Files


def test_a_file_is_a_dataset_of_which_all_rows_are_for_training(api: Client) -> None:
    file = upload(api)
    dataset = Dataset.objects.get(public_id=file["id"])
    assert (dataset.train_rows, dataset.eval_rows) == (40, 0)
    assert (file["object"], file["purpose"], file["status"], file["filename"]) == ("file", "fine-tune", "processed", "rows.jsonl")
    assert api.get(f"/v1/files/{file['id']}").json() == file
    assert [found["id"] for found in api.get("/v1/files").json()["data"]] == [file["id"]]


def test_a_bad_file_is_refused_with_its_line(api: Client) -> None:
    answer = api.post("/v1/files", {"file": jsonl({"prompt": "1+1="}, "{broken"), "purpose": "fine-tune"})
    assert "line 2" in error(answer, 400)["message"]
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(
    ("form", "param"), [({"purpose": "assistants"}, "purpose"), ({}, "purpose"), ({"purpose": "fine-tune", "speed": "1"}, "speed")]
)
def test_a_file_for_something_else_is_refused(api: Client, form: dict[str, str], param: str) -> None:
    assert error(api.post("/v1/files", {"file": additions(4), **form}), 400)["param"] == param


@pytest.mark.parametrize(
    "kind", ["", "application/json", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", "text/plain"]
)
@pytest.mark.parametrize("content", [b"", b'{"purpose": "fine-tune"}', b"[]"])
def test_a_file_that_is_sent_as_no_form_is_refused_with_the_way(api: Client, kind: str, content: bytes) -> None:
    answer = api.generic("POST", "/v1/files", content, content_type=kind)
    assert answer.status_code in (400, 415)
    assert error(answer, answer.status_code)["type"] == "invalid_request_error"
    assert not Dataset.objects.exists()


# Jobs


def test_a_job_is_the_same_job_as_one_of_the_pages(api: Client, world: World) -> None:
    asked = {"batch_size": 4, "n_epochs": 2, "learning_rate_multiplier": 0.5, "compute_multiplier": 0.5, "eval_interval": 3, "lora_rank": 4}
    job = made(api, suffix="sums", seed=7, reinforcement={"hyperparameters": asked})
    found = Job.objects.get(public_id=job["id"])
    spec = found.spec
    assert (found.name, found.tenant, spec["seed"]) == ("sums", world.sums, 7)
    assert (spec["rollout"]["prompts_per_step"], spec["rollout"]["group_size"], spec["lora"]["rank"]) == (4, 4, 4)
    assert (spec["train"]["steps"], spec["train"]["learning_rate"], spec["eval"]["every"]) == (20, 0.0005, 3)
    assert (job["status"], job["object"], job["model"], job["fine_tuned_model"]) == ("queued", "fine_tuning.job", "tiny-math", None)
    told = job["method"]["reinforcement"]["hyperparameters"]
    assert (told["batch_size"], told["n_epochs"], told["group_size"]) == (4, 2, 4)


def test_auto_is_the_same_as_leaving_it_out(api: Client) -> None:
    job = made(api, reinforcement={"hyperparameters": {"batch_size": "auto", "n_epochs": "auto"}})
    assert Job.objects.get(public_id=job["id"]).spec["rollout"]["prompts_per_step"] == 16


def test_a_small_file_makes_a_small_batch(api: Client) -> None:
    answer = create(api, body(upload(api, additions(5))["id"]))
    assert answer.json()["method"]["reinforcement"]["hyperparameters"]["batch_size"] == 5


def test_a_validation_file_is_held_out_and_the_answer_names_both_files(api: Client) -> None:
    train, held_out = upload(api), upload(api, additions(6))
    for _ in range(2):
        job = create(api, body(train["id"], validation_file=held_out["id"])).json()
        assert (job["training_file"], job["validation_file"]) == (train["id"], held_out["id"])
    assert Dataset.objects.count() == 3
    found = Job.objects.get(public_id=job["id"])
    assert (found.dataset.train_rows, found.dataset.eval_rows) == (40, 6)
    from portal.datasets.preview import raw_page

    assert [row["row"] for row in raw_page(found.dataset, "eval", start=0, limit=10, needle="").rows] == list(range(40, 46))


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"speed": 1}, "speed"),
        ({"integrations": [{"type": "wandb"}]}, "integrations"),
        ({"hyperparameters": {"n_epochs": 1}}, "hyperparameters"),
        ({"method": {"type": "supervised"}}, "method.type"),
        ({"training_file": "ds_nothing"}, "training_file"),
        ({"training_file": 5}, "training_file"),
        ({"model": "gpt-5"}, "model"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"reinforcement": {"hyperparameters": {"speed": 1}}}, "method.reinforcement.hyperparameters.speed"),
        ({"reinforcement": {"hyperparameters": {"reasoning_effort": "high"}}}, "method.reinforcement.hyperparameters.reasoning_effort"),
        ({"reinforcement": {"hyperparameters": {"batch_size": 0}}}, "method.reinforcement.hyperparameters.batch_size"),
        ({"reinforcement": {"hyperparameters": {"n_epochs": "many"}}}, "method.reinforcement.hyperparameters.n_epochs"),
        ({"reinforcement": {"hyperparameters": {"steps": 2, "n_epochs": 1}}}, "method.reinforcement.hyperparameters.steps"),
        ({"reinforcement": {"response_format": {"type": "text"}}}, "method.reinforcement.response_format"),
        ({"grader": {"type": "magic"}}, "method.reinforcement.grader.type"),
        ({"grader": {"type": "string_check", "speed": 1}}, "method.reinforcement.grader.speed"),
    ],
)
def test_a_refusal_names_the_field_in_openais_words_and_leaves_nothing(api: Client, changes: dict[str, Any], param: str) -> None:
    file = upload(api)["id"]
    assert error(create(api, body(file, **changes)), 400)["param"] == param
    assert not Job.objects.exists() and not Reward.objects.exists()


def test_equal_graders_are_one_reward(api: Client) -> None:
    for _ in range(2):
        made(api, grader=MULTI)
    assert Reward.objects.get().grader["type"] == "multi"


def test_the_same_key_is_the_same_job(api: Client) -> None:
    asked = body(upload(api)["id"], metadata={"run": "1"})
    first, second = (create(api, asked, **{"Idempotency-Key": "k"}).json()["id"] for _ in range(2))
    assert first == second
    other = create(api, {**asked, "seed": 9}, **{"Idempotency-Key": "k"})
    assert other.status_code == 409


def test_lists_are_paged_by_the_last_id_and_filtered_by_metadata(api: Client) -> None:
    file = upload(api)["id"]
    ids = [create(api, body(file, metadata={"run": str(n % 2), "x__y": "z"})).json()["id"] for n in range(4)][::-1]
    first = api.get("/v1/fine_tuning/jobs?limit=3").json()
    assert ([job["id"] for job in first["data"]], first["has_more"]) == (ids[:3], True)
    second = api.get(f"/v1/fine_tuning/jobs?limit=3&after={first['last_id']}").json()
    assert ([job["id"] for job in second["data"]], second["has_more"]) == (ids[3:], False)
    odd = api.get("/v1/fine_tuning/jobs", {"metadata[run]": "1", "metadata[x__y]": "z"}).json()["data"]
    assert [job["id"] for job in odd] == [ids[0], ids[2]]
    assert api.get("/v1/fine_tuning/jobs?metadata=null").json()["data"] == []
    error(api.get("/v1/fine_tuning/jobs?after=job_x"), 404)
    for limit in ("limit=0", "limit=1e3", "limit=1&limit=2", "limit=1e3&limit=1"):
        assert error(api.get(f"/v1/fine_tuning/jobs?{limit}"), 400)["param"] == "limit"


def test_the_list_asks_as_many_questions_for_many_jobs_as_for_few(api: Client, django_assert_max_num_queries: Any) -> None:
    file = upload(api)["id"]
    for n in range(6):
        create(api, body(file, metadata={"run": str(n)}))
    with django_assert_max_num_queries(12):
        assert len(api.get("/v1/fine_tuning/jobs").json()["data"]) == 6


def test_numbers_are_numbers_and_no_key_stands_twice(api: Client) -> None:
    asked = body(upload(api)["id"], reinforcement={"hyperparameters": {"steps": True, "lora_rank": "8"}}, seed="7")
    place = "method.reinforcement.hyperparameters"
    assert error(create(api, asked), 400)["param"] in (f"{place}.steps", f"{place}.lora_rank", "seed")
    twice = json.dumps(body(upload(api)["id"]))[:-1] + ', "model": "tiny-math"}'
    assert error(api.post("/v1/fine_tuning/jobs", twice, content_type="application/json"), 400)["param"] == "model"


@pytest.mark.parametrize("kind", ["cancel", "pause"])
def test_orders_are_passed_on(api: Client, engine: FakeEngine, kind: str) -> None:
    job = made(api)
    answer = api.post(f"/v1/fine_tuning/jobs/{job['id']}/{kind}")
    assert (answer.status_code, answer.json()["id"]) == (200, job["id"])
    assert Job.objects.get().commands.get().kind == kind


def test_only_a_paused_job_goes_on(api: Client) -> None:
    job = made(api)
    error(api.post(f"/v1/fine_tuning/jobs/{job['id']}/resume"), 409)


# Events and checkpoints


@pytest.fixture
def run(api: Client, engine: FakeEngine) -> dict[str, Any]:
    """A job three steps on, with evaluations of the first and the last."""
    job = made(api)
    spec = Job.objects.get().spec
    engine.emit(job["id"], "accepted")
    engine.emit(job["id"], "admitted")
    engine.emit(job["id"], "eval", **fake_script.eval_event(job["id"], spec, 0))
    for version in range(3):
        for _, kind, data in fake_script.step_events(job["id"], spec, version, 0.0):
            engine.emit(job["id"], kind, **data)
    engine.emit(job["id"], "eval", **fake_script.eval_event(job["id"], spec, 3))
    ingest_all(engine)
    return job


def ingest_all(engine: FakeEngine) -> None:
    page = {"engine": engine.engine, "epoch": engine.epoch, "events": engine.journal, "last": len(engine.journal)}
    ingest.change_engine(engine.engine, engine.epoch, NOW)
    ingest.store(ingest.Page.parse(page), 0, NOW)


def test_checkpoints_are_the_committed_versions_newest_first(api: Client, run: dict[str, Any]) -> None:
    path = f"/v1/fine_tuning/jobs/{run['id']}/checkpoints"
    found = api.get(path).json()
    assert [checkpoint["step_number"] for checkpoint in found["data"]] == [3, 2, 1]
    newest = found["data"][0]
    assert newest["fine_tuned_model_checkpoint"] == f"{run['id']}@3"
    assert 0 <= newest["metrics"]["train_mean_reward"] <= 1 and 0 <= newest["metrics"]["full_valid_mean_reward"] <= 1
    assert "full_valid_mean_reward" not in found["data"][1]["metrics"]
    after = api.get(f"{path}?after={newest['id']}&limit=1").json()
    assert ([checkpoint["step_number"] for checkpoint in after["data"]], after["has_more"]) == ([2], True)


def test_events_are_told_newest_first_and_paged(api: Client, run: dict[str, Any]) -> None:
    path = f"/v1/fine_tuning/jobs/{run['id']}/events"
    seen, after = [], ""
    while True:
        found = api.get(f"{path}?limit=4{after}").json()
        seen += found["data"]
        if not found["has_more"]:
            break
        after = f"&after={found['last_id']}"
    assert len({event["id"] for event in seen}) == len(seen) == Job.objects.get().last_seq
    assert seen[0]["message"].startswith("Step 3 is evaluated: held-out reward")
    assert {event["type"] for event in seen} == {"message", "metrics"}


def test_a_version_is_a_model(api: Client, run: dict[str, Any]) -> None:
    names = [model["id"] for model in api.get("/v1/models").json()["data"]]
    assert names == ["tiny-math", f"{run['id']}@3"]
    assert api.get(f"/v1/models/{run['id']}").json()["id"] == f"{run['id']}@3"
    assert api.get(f"/v1/models/{run['id']}@2").json()["parent"] == "tiny-math"
    assert error(api.get(f"/v1/models/{run['id']}@4"), 404)["code"] == "model_not_found"


# Graders


def test_a_grader_is_validated(api: Client) -> None:
    answer = api.post("/v1/fine_tuning/alpha/graders/validate", {"grader": MULTI}, content_type="application/json")
    assert answer.json()["grader"]["calculate_output"] == MULTI["calculate_output"]
    bad = api.post("/v1/fine_tuning/alpha/graders/validate", {"grader": {"type": "math", "x": 1}}, content_type="application/json")
    assert error(bad, 400)["param"] == "grader.x"


@pytest.mark.parametrize(
    ("text", "reward", "parts"), [("42", 1.0, {"exact": 1.0, "close": 1.0}), ("it is 42", 0.5, {"exact": 0.0, "close": 1.0})]
)
def test_a_grader_is_run(api: Client, text: str, reward: float, parts: dict[str, float]) -> None:
    asked = {"grader": MULTI, "model_sample": text, "item": {"answer": "42"}}
    answer = api.post("/v1/fine_tuning/alpha/graders/run", asked, content_type="application/json").json()
    assert (answer["reward"], answer["sub_rewards"]) == (reward, parts)
    assert not any(value for value in answer["metadata"]["errors"].values())


def test_a_grading_that_fails_is_no_reward_of_0(api: Client) -> None:
    asked = {"grader": {"type": "numeric", "reference": "{{item.missing}}"}, "model_sample": "42", "item": {}}
    answer = api.post("/v1/fine_tuning/alpha/graders/run", asked, content_type="application/json").json()
    assert answer["reward"] is None
    assert sum(value is True for value in answer["metadata"]["errors"].values()) == 1


# The shape


@pytest.mark.parametrize("path", ["/v1/nothing", "/v1/files/ds_x", "/v1/fine_tuning/jobs/job_x", "/v1/embeddings"])
def test_what_is_not_there_is_404_in_openais_shape(api: Client, path: str) -> None:
    error(api.get(path), 404)


def test_without_a_token_nothing_opens(world: World) -> None:
    assert error(Client().get("/v1/models"), 401)["type"] == "authentication_error"


def test_a_files_rows_come_back_as_they_came(api: Client) -> None:
    csv = io.BytesIO(b"prompt,answer\n" + b"".join(b"%d+1=,%d\n" % (n, n + 1) for n in range(40)))
    csv.name = "sums.csv"
    answer = api.get(f"/v1/files/{upload(api, csv)['id']}/content", headers={"Accept": "application/binary"})
    text = b"".join(answer.streaming_content)
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["answer"] for row in rows] == [str(n + 1) for n in range(40)]
    assert upload(api, jsonl(*rows))["id"]  # they can be uploaded again


def test_held_out_rows_come_last(api: Client, world: World) -> None:
    dataset = world.dataset()
    rows = b"".join(api.get(f"/v1/files/{dataset.public_id}/content").streaming_content).splitlines()
    assert len(rows) == dataset.rows > dataset.train_rows


def test_a_deleted_file_is_gone_with_its_bytes(api: Client, settings: Any, django_capture_on_commit_callbacks: Any) -> None:
    file, twin = upload(api, additions(41)), upload(api, additions(41))
    sha256 = Dataset.objects.get(public_id=file["id"]).train_sha256
    place = Path(settings.BLOBS_DIR) / sha256[:2] / sha256
    for gone, left in ((file, True), (twin, False)):
        with django_capture_on_commit_callbacks(execute=True):
            answer = api.delete(f"/v1/files/{gone['id']}")
        assert answer.json() == {"id": gone["id"], "object": "file", "deleted": True}
        assert error(api.get(f"/v1/files/{gone['id']}"), 404)["code"] == "not_found"
        assert place.exists() is left  # the other has the same bytes


def test_a_file_that_a_job_was_made_of_stays(api: Client) -> None:
    job = made(api)
    assert "one job was made of it" in error(api.delete(f"/v1/files/{job['training_file']}"), 409)["message"]
    assert api.get(f"/v1/files/{job['training_file']}").status_code == 200


def test_what_a_list_of_files_cannot_do_is_named(api: Client) -> None:
    upload(api)
    assert len(api.get("/v1/files?order=desc&limit=1&purpose=fine-tune").json()["data"]) == 1
    assert error(api.get("/v1/files?order=asc"), 400)["param"] == "order"
    assert error(api.get("/v1/files?colour=red"), 400)["param"] == "colour"


def test_a_token_without_the_scope_is_refused(world: World) -> None:
    api = world.api(world.bob, scopes=("models:read",))
    assert api.get("/v1/models").status_code == 200
    assert error(api.get("/v1/files"), 403)["type"] == "permission_error"
    assert error(create(api, {}), 403)["type"] == "permission_error"


def test_the_table_in_the_docs_is_the_table_in_the_code() -> None:
    page = Path("deploy/OPENAI.md").read_text()
    for table, known in fields.TABLES.items():
        _, _, rest = page.partition(f"### `{table}`\n")
        rows = [line for line in rest.partition("\n#")[0].splitlines() if line.startswith("| `")]
        wanted = [f"| `{name}` | {field.kind}{_unless(field)} | {field.note} |" for name, field in known.items()]
        assert rows == wanted, table


def _unless(field: fields.Field) -> str:
    return f" unless {' or '.join(f'`{json.dumps(value)}`' for value in field.harmless)}" if field.harmless else ""
