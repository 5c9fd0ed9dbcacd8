"""The playground in a real browser: answers stream into three panes, each with its reward, and can be stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.people import Person

pytestmark = [pytest.mark.browser, pytest.mark.stack]
Visit = Callable[..., Page]


def test_from_a_checkpoint_to_three_answers_side_by_side(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=3)}/")
    expect(page.locator("#run-state")).to_have_text("succeeded", timeout=PATIENCE_MS)
    page.click("#checkpoints li:first-child a[aria-label^='Try version 3']")
    expect(page.locator("[data-step]").first).to_have_value("3")

    page.click("#playground-row")
    expect(page.locator("#playground-row-note")).to_contain_text("held out")
    right = page.evaluate("() => JSON.parse(document.querySelector('#playground-item').value).answer")
    page.click("#playground-send")
    texts, rewards = page.locator("[data-text]"), page.locator("[data-reward]")
    expect(rewards).to_have_text(["Reward 0", "Reward 1", "Reward 1"], timeout=PATIENCE_MS)
    expect(texts).to_have_text([str(int(right) + 1), right, right])
    expect(page.locator("#playground-send")).to_be_enabled()


def test_what_is_asked_by_hand_is_answered_without_a_reward(visit: Visit, alice: Person) -> None:
    page = visit(f"/playground/{alice.job(steps=2)}/?step=&against=")
    expect(page.locator("[data-pane][data-off]")).to_have_count(2)
    page.click("#playground-send")
    expect(page.locator("#playground-error")).to_contain_text("Write a prompt first")
    page.fill("#playground-prompt", "<img src=x onerror=alert(1)> what is it?")
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-text]").first).to_have_text("42", timeout=PATIENCE_MS)
    expect(page.locator("[data-figures]").first).to_contain_text("2 tokens")
    expect(page.locator("[data-reward]").first).to_be_hidden()
    expect(page.locator("#playground-error")).to_be_hidden()


def test_a_row_that_is_no_json_is_told_beside_the_question(visit: Visit, alice: Person) -> None:
    page = visit(f"/playground/{alice.job(steps=2)}/")
    page.fill("#playground-prompt", "1+1=")
    page.click("summary:has-text('Sampling')")
    page.fill("#playground-item", "{answer: 2}")
    page.click("#playground-send")
    expect(page.locator("#playground-error")).to_contain_text("no JSON object")


def test_columns_are_compared_by_their_likeliest_answers_unless_asked_otherwise_and_then_each_draws_by_itself(
    visit: Visit, alice: Person
) -> None:
    page = visit(f"/jobs/{alice.job(steps=2)}/")
    expect(page.locator("#run-state")).to_have_text("succeeded", timeout=PATIENCE_MS)
    page.click("#tab-playground")
    expect(page.locator("[data-pane]")).to_have_count(3)
    asked: list[dict[str, Any]] = []
    page.on("request", lambda request: asked.append(request.post_data_json) if request.url.endswith("/v1/chat/completions") else None)
    page.fill("#playground-prompt", "1+1=")
    page.click("#playground-send")
    expect(page.locator("[data-figures]", has_text="ended by itself")).to_have_count(3, timeout=PATIENCE_MS)
    assert [order["temperature"] for order in asked] == [0, 0, 0]
    expect(page.locator("[data-figures]", has_text="seed")).to_have_count(0)

    asked.clear()
    page.click("text=One of many")
    page.click("#playground-send")
    expect(page.locator("[data-figures]", has_text="seed")).to_have_count(3, timeout=PATIENCE_MS)
    assert [order["temperature"] for order in asked] == [1, 1, 1]
    assert len({order["seed"] for order in asked}) == 3

    asked.clear()
    page.click("summary:has-text('Sampling')")
    page.fill("#playground-seed", "7")
    page.fill("#playground-temperature", "0")
    expect(page.locator("[name=draw][value=likeliest]")).to_be_checked()
    page.click("#playground-send")
    expect(page.locator("[data-figures]", has_text="seed")).to_have_count(0, timeout=PATIENCE_MS)
    assert [order["seed"] for order in asked] == [7, 7, 7]
