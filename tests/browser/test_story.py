"""A stranger's first visit, with only the pages: sign up, upload, reward, job, live curve, adapter."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Watch
from tests.browser.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def upload(page: Page, name: str, content: bytes) -> None:
    page.set_input_files("input[type=file]", {"name": name, "mimeType": "application/json", "buffer": content})
    page.click("text=Check and store")


def sign_up(page: Page, email: str) -> None:
    page.fill("input[name=email]", email)
    page.fill("input[name=password1]", "a long enough secret")
    page.fill("input[name=password2]", "a long enough secret")
    page.click("text=Create account")


def link_for(email: str, mails: Path) -> str:
    """The address in the one mail to ``email``."""
    (text,) = (text for mail in mails.iterdir() if f"To: {email}" in (text := mail.read_text()))
    return next(line for line in text.splitlines() if line.startswith("http"))


def test_from_sign_up_to_an_adapter(visit: Callable[..., Page], watch: Watch, stack: Stack) -> None:
    watch.allow("/datasets/new/")  # the refused upload
    page = visit("/accounts/signup/", anonymous=True)
    sign_up(page, "newcomer@example.org")
    page.goto(link_for("newcomer@example.org", stack.state / "mail"))
    page.click("text=Yes, confirm it")
    page.get_by_role("link", name="Upload a dataset").click()

    upload(page, "broken.jsonl", b'{"prompt": "1+1=", "answer": "2"}\n{"prompt": }\n')
    expect(page.locator(".report tbody tr")).to_have_count(1)
    expect(page.locator(".report tbody td").first).to_have_text("2")

    rows = "\n".join(json.dumps({"prompt": f"{n}+1=", "answer": str(n + 1)}) for n in range(60))
    upload(page, "sums.jsonl", rows.encode())
    expect(page.locator("h1")).to_have_text("sums")

    page.click(".brand")
    page.get_by_role("link", name="Create a reward").click()
    page.fill("input[name=name]", "Right sum")
    expect(page.locator("#example-reference")).to_have_text("1")
    page.click("button:has-text('Create reward')")

    page.click(".brand")
    page.get_by_role("link", name="Start a job").click()
    page.fill("input[name='train.steps']", "8")
    page.click("button:has-text('Start job')")
    expect(page.locator("#run-state")).to_have_text("succeeded", timeout=PATIENCE_MS)
    with page.expect_download() as download:
        page.click("#run-download")
    assert download.value.suggested_filename.endswith("v8.zip")


def test_a_refused_job_names_its_field(visit: Callable[..., Page], alice, watch: Watch) -> None:
    watch.allow("/jobs/new/")
    alice.dataset()
    alice.reward()
    page = visit("/jobs/new/")
    page.fill("input[name='rollout.group_size']", "0")
    page.click("button:has-text('Start job')")
    expect(page.locator("#id_rollout\\.group_size_error")).to_contain_text("greater than or equal to 2")
    assert page.get_attribute("[name='rollout.group_size']", "aria-invalid") == "true"


def test_a_preset_fills_the_form_and_the_estimate(visit: Callable[..., Page], alice) -> None:
    alice.dataset()
    alice.reward()
    page = visit("/jobs/new/")
    page.check("input[value=control]")
    assert page.input_value("input[name='train.learning_rate']") == "0"
    page.fill("input[name='rollout.group_size']", "4")
    expect(page.locator("#estimate-completions")).to_have_text("64")


def test_a_token_is_shown_once_and_revoked(visit: Callable[..., Page]) -> None:
    page = visit("/settings/tokens/new/")
    page.fill("input[name=name]", "nightly")
    page.click("text=Create token")
    assert page.input_value("#secret").startswith("mrl_")
    page.reload()  # makes no second token, and shows the secret no more
    expect(page.locator("#secret")).to_have_count(0)
    row = page.locator("tr", has_text="nightly")
    expect(row).to_have_count(1)
    row.locator("button").click()
    page.click("#confirm-yes")
    expect(page.locator("tr", has_text="nightly")).to_contain_text("revoked")


def test_hostile_names_are_inert(visit: Callable[..., Page], alice) -> None:
    hostile = '<img src=x onerror="document.body.dataset.owned=1"><script>document.body.dataset.owned=1</script>'
    job = alice.job(steps=2, name=hostile)
    for path in ("/", "/jobs/", f"/jobs/{job}/"):
        page = visit(path)
        page.wait_for_load_state()
        expect(page.locator("main")).to_contain_text('onerror="document')
        assert page.get_attribute("body", "data-owned") is None
