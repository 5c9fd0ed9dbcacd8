"""The environment in a browser: on the job form its fields come and go, on the run page one sees what the tools did."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Watch
from tests.browser.looking import DESK, PHONE, faults
from tests.browser.people import Person

pytestmark = [pytest.mark.browser, pytest.mark.stack]


def choose(page: Page, name: str, value: str) -> None:
    page.check(f'input[name="{name}"][value="{value}"]')


@pytest.fixture
def form(visit: Callable[..., Page], alice: Person) -> Page:
    alice.dataset(), alice.reward()
    return visit("/jobs/new/")


def test_the_fields_of_tools_are_there_only_where_tools_are_chosen(form: Page) -> None:
    expect(form.locator("#tool-fields")).to_be_hidden()
    choose(form, "environment.type", "tools")
    expect(form.locator("#tool-fields")).to_be_visible()
    choose(form, "preset", "control")
    expect(form.locator("#tool-fields")).to_be_hidden()


def test_turns_and_tool_answers_count_into_context_and_tokens(form: Page) -> None:
    choose(form, "preset", "quick")
    expect(form.locator("#estimate-context")).to_have_text("48 tokens")
    choose(form, "environment.type", "tools")
    form.fill('[name="environment.max_calls"]', "2")
    form.fill('[name="environment.max_observation_tokens"]', "100")
    expect(form.locator("#estimate-context")).to_have_text("280 tokens")  # 32 + 3 turns of 16 + 2 answers of 100
    form.fill('[name="environment.max_tokens"]', "40")
    expect(form.locator("#estimate-context")).to_have_text("72 tokens")


def test_a_refused_form_lists_its_faults_and_each_leads_to_its_field_out_of_what_is_folded(form: Page, watch: Watch) -> None:
    watch.allow("/jobs/new/")  # the refusal is a 422
    advanced = form.locator("details:has(> summary:has-text('Advanced'))")
    form.fill('[name="train.learning_rate"]', "")
    advanced.locator("summary").click()
    form.fill('[name="lora.rank"]', "0")
    form.click("text=Start job")
    summary = form.locator("[data-faults]")
    expect(summary).to_be_focused()
    expect(summary.locator("li")).to_have_text(
        ["Learning rate: Fill this in; 0.001 is usual.", re.compile("^Adapter rank: Must be greater")]
    )
    advanced.locator("summary").click()
    expect(form.locator('[name="lora.rank"]')).to_be_hidden()
    summary.get_by_text("Adapter rank").click()
    expect(form.locator('[name="lora.rank"]')).to_be_focused()
    expect(form.locator('[name="lora.rank"]')).to_be_in_viewport()
    assert faults(form, PHONE, DESK) == []


def test_the_run_page_says_what_the_tools_did_and_what_ended_the_completions(visit: Callable[..., Page], alice: Person) -> None:
    tools = {"type": "tools", "tools": ["search", "calculator"], "max_calls": 2, "max_tokens": 64}
    page = visit(f"/jobs/{alice.job(steps=2, environment=tools)}/")

    # The fake engine's 16 prompts of 8 completions.
    expect(page.locator("#tools-calls")).to_have_text("256, 2.0 a completion")
    expect(page.locator("#tools-failed")).to_have_text("timeout 16 · bad call 8")
    expect(page.locator("#tools-endings")).to_have_text("answered 112 · no calls left 16")
