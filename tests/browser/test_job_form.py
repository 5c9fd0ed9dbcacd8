"""The environment in a browser: on the job form its fields come and go, on the run page one sees what the tools did."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

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


def test_the_run_page_says_what_the_tools_did_and_what_ended_the_completions(visit: Callable[..., Page], alice: Person) -> None:
    tools = {"type": "tools", "tools": ["search", "calculator"], "max_calls": 2, "max_tokens": 64}
    page = visit(f"/jobs/{alice.job(steps=2, environment=tools)}/")

    # The fake engine's 16 prompts of 8 completions.
    expect(page.locator("#tools-calls")).to_have_text("256, 2.0 a completion")
    expect(page.locator("#tools-failed")).to_have_text("timeout 16 · bad call 8")
    expect(page.locator("#tools-endings")).to_have_text("answered 112 · no calls left 16")
