"""The Lab in the browser: drafts are kept, faults stand beside their fields, and nobody else sees them."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from engine.grader_spec import TYPES
from engine.rewards.sandbox import Failed
from portal.rewards import sheets
from portal.rewards.actions import create_reward
from portal.rewards.models import LabRun, Reward, Sheet
from tests.portal.fake_engine import FakeEngine
from tests.portal.rewards.examples import FIELDS, SECRET, grader
from tests.portal.rewards.test_pages import USUAL
from tests.portal.rewards.trials import SOURCE
from tests.portal.world import World

TEXT = {"try-on": "text", "try-output_text": "42", "try-item": '{"answer": "42"}', "try-repeats": "2"}
CORPUS = {"try-on": "corpus", "try-repeats": "1"}


@pytest.fixture
def alice(world: World) -> Client:
    return world.client(world.alice)


def draft(alice: Client, type: str = "numeric", **changes: Any) -> str:
    """The address of a new draft."""
    fields = {**USUAL, "name": "mine", "type": type, **FIELDS[type], **changes}
    made = alice.post("/rewards/new/", {**fields, "do": "save"}, headers={"X-Requested-With": "autosave"})
    assert made.status_code == 201, made.content
    return made["Location"]


def typed(address: str, alice: Client) -> dict[str, Any]:
    return {name: values[-1] for name, values in Sheet.objects.get(public_id=address.strip("/").split("/")[-1]).fields.items()}


def test_what_is_typed_is_there_after_a_reload(alice: Client) -> None:
    address = draft(alice, "python", name="half done", source="def grade(")
    page = alice.get(address).content.decode()
    assert "half done" in page
    assert "def grade(" in page
    assert not Reward.objects.exists()


def test_boxes_that_were_unchecked_stay_so(alice: Client) -> None:
    form = alice.get(draft(alice, "string_check")).context["form"]
    assert form["strip"].value() is False
    assert alice.get("/rewards/new/").context["form"]["strip"].value() is True


@pytest.mark.parametrize("type", TYPES)
def test_a_draft_of_each_kind_shows_its_fields_again(alice: Client, type: str) -> None:
    form = alice.get(draft(alice, type)).context["form"]
    wanted = {name: value.replace("\r\n", "\n") for name, value in FIELDS[type].items() if value != "on"}
    assert {name: form[name].value() for name in wanted} == wanted


def test_a_draft_becomes_a_reward_with_its_trials_and_is_gone(alice: Client, world: World) -> None:
    address = draft(alice)
    fields = {**typed(address, alice), **TEXT}
    assert alice.post(address, {**fields, "do": "run"}).status_code == 302
    made = alice.post(address, {**fields, "do": "create"})
    reward = Reward.objects.get(name="mine")
    assert made["Location"] == f"/rewards/{reward.public_id}/"
    assert reward.lab_runs.count() == 1
    assert alice.get(address).status_code == 404
    assert "42" in alice.get(f"/rewards/{reward.public_id}/lab/").context["trial"]["output_text"].value()


def test_a_run_is_shown_on_its_page(alice: Client) -> None:
    address = draft(alice)
    begun = alice.post(address, {**typed(address, alice), **TEXT, "do": "run"})
    page = alice.get(begun["Location"].split("#")[0])
    assert (page.context["run"].state, page.context["figures"].mean) == ("succeeded", 1.0)
    assert "each graded twice" in page.content.decode()
    assert '<h1 class="wrap-anywhere">mine</h1>' in page.content.decode()
    assert "By kind of case" not in page.content.decode()


def test_a_planted_bug_marks_its_line(alice: Client, engine: FakeEngine) -> None:
    from tests.portal.rewards.trials import Scripted

    engine.sandbox = Scripted(Failed(kind="exception", message="KeyError: 'text'", line=2))
    address = draft(alice, "python", source=SOURCE)
    begun = alice.post(address, {**typed(address, alice), **TEXT, "do": "run"})
    page = alice.get(begun["Location"].split("#")[0]).content.decode()
    assert 'data-error-line="2"' in page
    assert "return sample[&#x27;text&#x27;] == item[&#x27;answer&#x27;]" in page


def test_a_syntax_error_marks_its_line_before_anything_is_run(alice: Client) -> None:
    address = draft(alice, "python", source="def grade(sample, item):\n    return 1 +\n")
    for do in ("check", "run", "create"):
        answer = alice.post(address, {**typed(address, alice), **TEXT, "do": do})
        assert answer.status_code == 422
        assert "line 2: invalid syntax" in str(answer.context["form"].errors["source"])
        if do != "create":
            assert 'data-error-line="2"' in answer.content.decode()
    assert not LabRun.objects.exists()


def test_a_check_needs_no_name_and_says_that_it_can_grade(alice: Client) -> None:
    address = draft(alice, name="")
    answer = alice.post(address, {**typed(address, alice), "do": "check"})
    assert (answer.status_code, "It can grade" in answer.content.decode()) == (200, True)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"try-item": "{"}, "item"),
        ({"try-item": "[]"}, "item"),
        ({"try-item": '{"a": "\\ud800"}'}, "on"),
        ({"try-repeats": "9"}, "repeats"),
        ({"try-on": "rows", "try-column": "answer"}, "dataset"),
        ({"try-on": "rows", "try-pick": "numbers", "try-numbers": "1, x"}, "numbers"),
        ({"try-on": "rows", "try-answer_from": "column", "try-column": ""}, "column"),
        ({"try-on": "rows", "try-count": "9999"}, "count"),
        ({"try-on": "guess"}, "on"),
    ],
)
def test_a_bad_trial_is_marked_at_its_field_and_kept(alice: Client, change: dict[str, str], field: str) -> None:
    address = draft(alice)
    answer = alice.post(address, {**typed(address, alice), **TEXT, **change, "do": "run"})
    assert answer.status_code == 422
    errors = answer.context["trial"].errors
    assert field in errors, errors
    assert typed(address, alice).items() >= change.items()


def test_span_and_list_of_row_numbers(alice: Client, world: World) -> None:
    dataset = world.dataset()
    address = draft(alice)
    trial = {"try-on": "rows", "try-dataset": dataset.public_id, "try-pick": "numbers", "try-numbers": "0-39", "try-column": "answer"}
    answer = alice.post(address, {**typed(address, alice), **trial, "try-repeats": "1", "do": "run"})
    assert answer.status_code == 422  # some of them are held out, and the first is named
    assert re.search(r"row \d+ is none of the training rows", str(answer.context["trial"].errors["numbers"]))


def test_the_corpus_shows_false_accepts_with_what_they_teach(alice: Client) -> None:
    address = draft(alice, "string_check", operation="like")
    begun = alice.post(address, {**typed(address, alice), **CORPUS, "do": "run"})
    where = begun["Location"].split("#")[0]
    page = alice.get(where)
    assert page.context["false_accepts"] > 5
    assert 'value="string_check" checked' in page.content.decode()  # the form stands above as before
    assert "Listing candidates is paid" in page.content.decode()
    assert alice.get(f"{where}&from=2").context["false_accepts"] == 0


@pytest.mark.parametrize("type", TYPES)
def test_a_copy_begins_as_the_reward_is(alice: Client, world: World, type: str) -> None:
    create_reward(world.sums, world.alice, "exact", {"type": "string_check"})
    reward = create_reward(world.sums, world.alice, "mine", grader(type))
    address = alice.post(f"/rewards/{reward.public_id}/copy/")["Location"]
    page = alice.get(address)
    assert SECRET not in page.content.decode()
    made = alice.post(address, {**typed(address, alice), "do": "create"})
    assert made.status_code == 302, made.context["form"].errors
    copied = Reward.objects.get(name="mine (copy)").grader
    assert {**copied, "signing_secret": ""} == {**reward.grader, "signing_secret": ""}


def test_what_the_form_cannot_show_is_not_copied_wrongly(alice: Client, world: World) -> None:
    reward = create_reward(world.sums, world.alice, "mine", grader("multi", graders={"exact": {"type": "numeric", "reference": "7"}}))
    assert alice.post(f"/rewards/{reward.public_id}/copy/")["Location"] == f"/rewards/{reward.public_id}/lab/"
    assert not Sheet.objects.exists()


def test_progress_becomes_the_whole_result_at_the_end(alice: Client, world: World) -> None:
    address = draft(alice)
    alice.post(address, {**typed(address, alice), **TEXT, "do": "run"})
    run = LabRun.objects.get()
    LabRun.objects.filter(pk=run.pk).update(state="running")
    open_ = alice.get(f"/rewards/runs/{run.public_id}/?part=progress", headers={"HX-Request": "true"})
    assert 'id="run-progress"' in open_.content.decode()
    assert "HX-Retarget" not in open_
    LabRun.objects.filter(pk=run.pk).update(state="succeeded")
    ended = alice.get(f"/rewards/runs/{run.public_id}/?part=progress", headers={"HX-Request": "true"})
    assert (ended["HX-Retarget"], 'id="run"' in ended.content.decode()) == ("#run", True)


def test_a_run_is_stopped_from_its_page(alice: Client) -> None:
    address = draft(alice)
    alice.post(address, {**typed(address, alice), **TEXT, "do": "run"})
    LabRun.objects.update(state="running")
    run = LabRun.objects.get()
    assert alice.post(f"/rewards/runs/{run.public_id}/stop/")["Location"].startswith(address)
    assert LabRun.objects.get().state == "stopped"


def test_an_engine_that_is_down_is_said_and_nothing_is_lost(alice: Client, engine: FakeEngine) -> None:
    address = draft(alice)
    engine.down = True
    begun = alice.post(address, {**typed(address, alice), **TEXT, "do": "run"})
    page = alice.get(begun["Location"].split("#")[0]).content.decode()
    assert "The engine does not answer at the moment" in page
    assert "mine" in page


def test_a_viewer_looks_and_does_not_touch(world: World) -> None:
    vera, reward = world.client(world.vera), world.reward()
    address = draft(world.client(world.alice))
    assert vera.get(f"/rewards/{reward.public_id}/lab/").status_code == 200
    assert vera.post(f"/rewards/{reward.public_id}/lab/", {**TEXT, "do": "run"}).status_code == 403
    assert vera.get(address).status_code == world.client(world.bob).get(address).status_code == 404
    assert vera.post("/rewards/new/", {"do": "save"}).status_code == 403
    assert not LabRun.objects.exists()


def test_too_much_is_not_kept_and_said(alice: Client, world: World) -> None:
    refused = alice.post("/rewards/new/", {"do": "save", "source": "x" * (sheets.MAX_BYTES + 1)}, headers={"X-Requested-With": "autosave"})
    assert (refused.status_code, b"at most" in refused.content) == (422, True)
    for _ in range(sheets.MAX_DRAFTS):
        Sheet.objects.create(tenant=world.sums, created_by=world.alice)
    full = alice.post("/rewards/new/", {"do": "save"}, headers={"X-Requested-With": "autosave"})
    assert (full.status_code, b"discard one" in full.content) == (422, True)


def test_drafts_are_listed_and_discarded(alice: Client) -> None:
    address = draft(alice, name="almost there")
    assert "almost there" in alice.get("/rewards/").content.decode()
    alice.post(f"{address}discard/")
    assert not Sheet.objects.exists()


def test_no_old_result_stands_beside_a_refusal(world: World, engine: FakeEngine) -> None:
    client, reward = world.client(world.alice), world.reward()
    tried = {"do": "run", "try-on": "text", "try-samples": "42", "try-item": '{"answer": "42"}', "try-repeats": "1"}
    path = f"/rewards/{reward.public_id}/lab/"
    assert client.post(path, tried).status_code == 302
    assert client.get(path).context["run"]
    refused = client.post(path, {**tried, "try-item": "{"})
    assert (refused.status_code, "run" in refused.context) == (422, False)
