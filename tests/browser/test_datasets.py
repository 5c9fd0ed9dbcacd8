"""A file with other people's columns, in a browser: read, looked at, reloaded, changed, stored, searched; and one cancelled on its way."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.looking import DESK, PHONE, faults
from tests.browser.people import Person

pytestmark = [pytest.mark.browser, pytest.mark.stack]
ROWS = [{"question": f"Ada has {n} coins and finds {n} more. How many has she?", "answer": f"Twice {n}.\n#### {2 * n}"} for n in range(40)]


def send(page: Page, rows: list[dict], name: str = "train.jsonl") -> None:
    page.set_input_files("input[name=file]", {"name": name, "mimeType": "text/plain", "buffer": "\n".join(map(json.dumps, rows)).encode()})
    page.click("text=Check and store")


def test_gsm8k_is_recognised_shown_and_stored(visit: Callable[..., Page]) -> None:
    page = visit("/datasets/new/")
    send(page, ROWS)
    expect(page.locator("main")).to_contain_text("looks like: GSM8K rows")
    expect(page.locator(".row-item").nth(3)).to_contain_text("Ada has 3 coins")
    page.reload()
    expect(page.locator("select[name=extract]")).to_have_value("hash")
    page.click("button:has-text('Store dataset')")
    expect(page.locator("h1")).to_have_text("train")
    page.fill("#row-search", "has 17 coins")
    page.click("button:has-text('Show')")
    expect(page.locator(".row-item")).to_have_count(1)
    expect(page.locator(".values")).to_contain_text("34")


def test_the_fields_follow_the_shape_that_is_chosen(visit: Callable[..., Page]) -> None:
    page = visit("/datasets/new/")
    send(page, ROWS)
    expect(page.locator("select[name=prompt]")).to_be_visible()
    page.check("input[name=shape][value=messages]")
    expect(page.locator("select[name=prompt]")).to_be_hidden()
    expect(page.locator("select[name=messages]")).to_be_visible()


def test_a_cancelled_upload_leaves_nothing_and_says_so(visit: Callable[..., Page]) -> None:
    page = visit("/datasets/new/")
    page.route("**/datasets/new/", lambda route: None if route.request.method == "POST" else route.continue_())
    send(page, ROWS)
    page.click("#upload-cancel")
    expect(page.locator("#problems")).to_have_text("Cancelled. Nothing was stored.")
    expect(page.locator("#drop-name")).to_contain_text("train.jsonl")


@pytest.mark.parametrize("what", ["dataset", "checkpoint"])
def test_a_mistyped_deletion_comes_back_open_with_the_reason_where_one_types(visit: Callable[..., Page], alice: Person, what: str) -> None:
    if what == "dataset":
        page = visit(f"/datasets/{alice.dataset()}/")
        page.click("summary:has-text('Delete this dataset')")
        page.fill("#typed", "something else")
        page.click("text=Delete the dataset")
    else:
        page = visit(f"/jobs/{alice.job(steps=3)}/")
        expect(page.locator("#run-state")).to_have_text("succeeded", timeout=PATIENCE_MS)
        page.goto(f"{page.url}checkpoints/")
        page.click("summary:has-text('Delete version 1')")
        page.fill("#typed-1", "v2")
        page.click("button:has-text('Delete version 1')")
    field = page.locator("[name=typed][aria-invalid=true]")
    expect(field).to_be_focused()
    expect(page.locator("details[open] .field-error")).to_contain_text("to delete it for good")
    assert faults(page, PHONE, DESK) == []
