"""From a file to a dataset in the browser's way: what is kept, checked, shown, changed, stored and thrown away."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from portal.datasets import uploads
from portal.datasets.models import Dataset, Upload
from portal.errors import Conflict, Invalid
from tenants.access import Forbidden
from tests.portal.fake_engine import TINY
from tests.portal.world import World, additions, jsonl

GSM8K = [{"question": f"What is {n} and {n}?", "answer": f"Add them.\n#### {2 * n:,}"} for n in range(1000, 1030)]


def send(world: World, file: Any, **fields: Any) -> Any:
    return world.client(world.alice).post("/datasets/new/", {"file": file, "eval_share": "0.1", **fields}, follow=True)


def kept(settings: Any) -> list[Path]:
    return [path for path in Path(settings.BLOBS_DIR).rglob("*") if path.is_file()]


def test_a_file_whose_columns_are_named_as_ours_is_stored_at_once(world: World, settings: Any) -> None:
    answer = send(world, additions(40))
    assert answer.redirect_chain[-1][0] == f"/datasets/{world.sums.datasets.get().public_id}/"
    assert not list((Path(settings.BLOBS_DIR) / "uploads").glob("*"))


def test_other_columns_are_stored_only_after_a_look(world: World) -> None:
    answer = send(world, jsonl(*GSM8K))
    upload = world.sums.uploads.get()
    assert answer.redirect_chain[-1][0] == f"/datasets/uploads/{upload.public_id}/"
    assert "looks like: GSM8K rows" in answer.content.decode()
    assert not world.sums.datasets.exists()


def reading(**changes: Any) -> dict[str, Any]:
    return {"name": "sums", "eval_share": "0.1", "seed": "0", "shape": "prompt", "prompt": "question", "answer": "answer", **changes}


def test_storing_uses_the_mapping_that_was_shown(world: World) -> None:
    send(world, jsonl(*GSM8K))
    page = f"/datasets/uploads/{world.sums.uploads.get().public_id}/"
    world.client(world.alice).post(page, reading(extract="hash", wish="store"))
    html = world.client(world.alice).get(f"/datasets/{world.sums.datasets.get().public_id}/").content.decode()
    assert "What is 1000 and 1000?" in html
    assert "<dd>2000</dd>" in html


def test_a_stored_upload_leads_on_to_its_dataset(world: World) -> None:
    send(world, jsonl(*GSM8K))
    page = f"/datasets/uploads/{world.sums.uploads.get().public_id}/"
    world.client(world.alice).post(page, reading(extract="hash", wish="store"))
    assert world.client(world.alice).get(page).headers["Location"] == f"/datasets/{world.sums.datasets.get().public_id}/"


def test_a_mapping_that_does_not_fit_names_the_lines_and_stores_nothing(world: World) -> None:
    send(world, jsonl(*GSM8K))
    upload = world.sums.uploads.get()
    world.client(world.alice).post(f"/datasets/uploads/{upload.public_id}/", reading(extract="boxed", wish="store"))
    upload.refresh_from_db()
    assert (upload.report["error_total"], upload.report["errors"][0]["line"]) == (30, 1)
    assert not world.sums.datasets.exists()


def test_a_reload_shows_the_report_again(world: World) -> None:
    upload = world.upload()
    for _ in range(2):
        html = world.client(world.bob).get(f"/datasets/uploads/{upload.public_id}/").content.decode()
        assert "broken JSON" in html
        assert "{broken" in html


def test_the_mended_file_keeps_what_was_chosen(world: World) -> None:
    upload = world.upload(options={"eval_share": 0.5, "seed": 7})
    send(world, additions(40), replaces=upload.public_id)
    dataset = world.sums.datasets.get()
    assert (dataset.name, dataset.eval_rows, dataset.recipe["seed"]) == ("mine", 20, 7)
    assert not world.sums.uploads.filter(pk=upload.pk).exists()


def test_another_file_brings_its_own_name_unless_one_was_chosen(world: World) -> None:
    unnamed = world.upload(name="broken", filename="broken.jsonl")
    file = additions(40)
    file.name = "sums.jsonl"
    send(world, file, replaces=unnamed.public_id)
    assert world.sums.datasets.get().name == "sums"


def test_a_held_out_file_is_held_out(world: World) -> None:
    held_out = jsonl(*({"prompt": f"held {n}", "answer": "x"} for n in range(5)))
    send(world, additions(40), eval_file=held_out)
    dataset = world.sums.datasets.get()
    assert (dataset.train_rows, dataset.eval_rows) == (40, 5)


def test_faults_of_the_held_out_file_are_told_apart(world: World) -> None:
    held_out = jsonl({"prompt": "x"}, "{broken")
    send(world, additions(40), eval_file=held_out)
    fault = world.sums.uploads.get().report["errors"][0]
    assert (fault["file"], fault["line"]) == ("eval_file", 2)


def test_held_out_prompts_that_are_trained_on_are_warned_of(world: World) -> None:
    send(world, additions(40), eval_file=jsonl({"prompt": "new"}, {"prompt": "3+4="}))
    report = world.sums.datasets.get().report
    leak = next(fault for fault in report["warnings"] if fault["cause"] == "leak")
    assert (leak["line"], "line 4 of the training file" in leak["message"]) == (2, True)


def test_discarding_leaves_nothing(world: World, settings: Any) -> None:
    upload = world.upload()
    assert kept(settings)
    world.client(world.alice).post(f"/datasets/uploads/{upload.public_id}/discard/")
    assert (world.sums.uploads.count(), kept(settings)) == (0, [])


def test_an_upload_nobody_returned_to_is_swept(world: World, settings: Any) -> None:
    world.upload()
    assert uploads.sweep(datetime.now(UTC) + uploads.KEPT_FOR + timedelta(seconds=1)) == 1
    assert kept(settings) == []


def test_a_check_whose_worker_died_is_begun_again(world: World) -> None:
    upload = world.upload()
    silent = datetime.now(UTC) - timedelta(hours=1)
    Upload.objects.filter(pk=upload.pk).update(state="checking", beat_at=silent, report={})
    answer = world.client(world.alice).get(f"/datasets/uploads/{upload.public_id}/status/")
    assert answer.headers["HX-Redirect"] == f"/datasets/uploads/{upload.public_id}/"
    upload.refresh_from_db()
    assert (upload.state, upload.report["error_total"]) == ("checked", 1)


def test_a_check_that_dies_every_time_fails_in_the_end(world: World) -> None:
    upload = world.upload()
    silent = datetime.now(UTC) - timedelta(hours=1)
    Upload.objects.filter(pk=upload.pk).update(state="checking", beat_at=silent, attempt=uploads.MAX_ATTEMPTS)
    world.client(world.alice).get(f"/datasets/uploads/{upload.public_id}/status/")
    upload.refresh_from_db()
    assert (upload.state, "interrupted" in upload.note) == ("failed", True)


def test_a_running_check_shows_how_far_it_is(world: World) -> None:
    upload = world.upload()
    Upload.objects.filter(pk=upload.pk).update(state="checking", beat_at=datetime.now(UTC), rows_read=1234567)
    assert "1,234,567 rows read" in world.client(world.alice).get(f"/datasets/uploads/{upload.public_id}/").content.decode()


def test_an_answer_to_an_earlier_check_changes_nothing(world: World) -> None:
    upload = world.upload()
    Upload.objects.filter(pk=upload.pk).update(state="waiting", attempt=9, report={})
    uploads.process(upload.pk, 8)
    upload.refresh_from_db()
    assert (upload.state, upload.report) == ("waiting", {})


def test_a_discarded_upload_stops_its_check(world: World) -> None:
    upload = world.upload()
    Upload.objects.filter(pk=upload.pk).update(state="checking")
    beat = uploads._Beat(Upload.objects.filter(pk=upload.pk))
    uploads.discard(world.sums, world.alice, upload)
    with pytest.raises(uploads.Superseded):
        beat(1)


def test_a_large_upload_is_left_to_a_worker(world: World, monkeypatch: pytest.MonkeyPatch, django_capture_on_commit_callbacks: Any) -> None:
    monkeypatch.setattr(uploads, "INLINE_BYTES", 10)
    with django_capture_on_commit_callbacks() as tasks:
        upload = world.upload(file=additions(40))
    assert (len(tasks), upload.state) == (1, "waiting")
    tasks[0]()
    upload.refresh_from_db()
    assert upload.stored_as == world.sums.datasets.get().public_id


def test_an_upload_cannot_be_changed_while_it_is_checked(world: World) -> None:
    upload = world.upload()
    Upload.objects.filter(pk=upload.pk).update(state="checking", beat_at=datetime.now(UTC))
    with pytest.raises(Conflict):
        uploads.change(world.sums, world.alice, upload, datetime.now(UTC), name="x", options={}, wish="check")


def test_uploads_cannot_pile_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "MAX_OPEN", 2)
    world.upload(), world.upload()
    with pytest.raises(Conflict):
        world.upload()


def test_a_file_over_the_limit_is_not_kept(world: World, settings: Any) -> None:
    settings.MAX_UPLOAD_BYTES = 1000
    with pytest.raises(Invalid, match="larger than 1,000 bytes"):
        world.upload(file=additions(200))
    assert kept(settings) == []


def test_a_viewer_neither_uploads_nor_changes_nor_discards(world: World) -> None:
    upload = world.upload()
    client = world.client(world.vera)
    page = f"/datasets/uploads/{upload.public_id}/"
    assert client.post("/datasets/new/", {"file": additions(20), "eval_share": "0.1"}).status_code == 403
    assert client.post(page, reading(shape="plain")).status_code == 403
    assert client.post(f"{page}discard/").status_code == 403
    with pytest.raises(Forbidden):
        world.upload(world.vera)


def test_a_fault_of_ours_is_told_as_ours(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "Checking", lambda *_: 1 / 0)
    upload = world.upload()
    assert (upload.state, "our side" in upload.note) == ("failed", True)


@pytest.mark.parametrize("where", ["uploads/{upload}", "{dataset}"])
def test_the_report_is_there_to_take_away(world: World, where: str) -> None:
    rows = jsonl(*({"prompt": f"=cmd {n // 2}", "answer": "x"} for n in range(20)))
    send(world, rows), world.upload()
    named = {"dataset": world.sums.datasets.get().public_id, "upload": world.sums.uploads.get(stored_as="").public_id}
    client = world.client(world.alice)
    as_json = json.loads(client.get(f"/datasets/{where.format(**named)}/report.json").content)
    as_csv = client.get(f"/datasets/{where.format(**named)}/report.csv").content.decode()
    assert as_json["rows"] > 0
    assert as_csv.count("\n") == 1 + len(as_json["errors"]) + len(as_json["warnings"])


def test_no_cell_of_a_downloaded_report_is_a_formula(world: World) -> None:
    upload = world.upload(file=jsonl({"prompt": "x", "=HYPERLINK(1)" * 10: 1}))
    lines = world.client(world.alice).get(f"/datasets/uploads/{upload.public_id}/report.csv").content.decode().splitlines()
    assert "'=HYPERLINK" in lines[1]
    assert ",=HYPERLINK" not in lines[1]


def test_a_new_version_stands_beside_the_old_one(world: World) -> None:
    first = world.dataset()
    send(world, additions(60), series=first.public_id, name="additions")
    second = world.sums.datasets.exclude(pk=first.pk).get()
    first.refresh_from_db()
    assert [(d.series, d.version) for d in (first, second)] == [(first.public_id, 1), (first.public_id, 2)]
    assert first.train_rows == 36


def test_a_version_of_a_strangers_dataset_is_refused(world: World) -> None:
    foreign = world.dataset(world.charlie)
    answer = send(world, additions(60), series=foreign.public_id)
    assert answer.status_code == 422
    assert not world.sums.datasets.exists()


def test_a_hostile_file_is_shown_as_text(world: World) -> None:
    hostile = "<script>alert(1)</script>"
    upload = world.upload(file=jsonl({"question": hostile, hostile: 1}, {"question": ""}), name=hostile)
    html = world.client(world.alice).get(f"/datasets/uploads/{upload.public_id}/").content.decode()
    assert hostile not in html
    assert "&lt;script&gt;" in html


def test_lengths_are_counted_for_the_chosen_model(world: World) -> None:
    send(world, additions(40), model="tiny-math")
    lengths = world.sums.datasets.get().lengths["tiny-math"]
    assert (lengths["rows"], lengths["max"], lengths["limit"]) == (40, 6, 128)


def test_lengths_can_be_measured_later(world: World) -> None:
    dataset = world.dataset()
    answer = world.client(world.bob).post(f"/datasets/{dataset.public_id}/lengths/", {"model": "tiny-math"}, follow=True)
    assert Dataset.objects.get().lengths["tiny-math"]["rows"] == 40
    assert "Prompt lengths: half have at most 6 tokens" in answer.content.decode()


def test_lengths_that_cannot_be_counted_say_why(world: World, engine: Any, settings: Any, tmp_path: Path) -> None:
    settings.STATE = tmp_path
    engine.models = [TINY.model_copy(update={"name": "other"})]
    dataset = world.dataset()
    world.client(world.bob).get("/jobs/new/")  # the engine's models are known from now on
    engine.down = True
    answer = world.client(world.bob).post(f"/datasets/{dataset.public_id}/lengths/", {"model": "other"}, follow=True)
    assert "the engine does not answer, and no tokenizer of other lies here" in answer.content.decode()


def test_an_unknown_model_is_a_404(world: World) -> None:
    dataset = world.dataset()
    assert world.client(world.bob).post(f"/datasets/{dataset.public_id}/lengths/", {"model": "../secrets"}).status_code == 404


def test_an_empty_upload_is_refused_with_a_reason(world: World) -> None:
    file = io.BytesIO(b"")
    file.name = "empty.jsonl"
    assert "the file has no rows" in send(world, file).content.decode()
