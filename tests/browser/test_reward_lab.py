"""The Reward Lab as its user walks it, on a real portal, with the engine's own graders and sandbox behind."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Watch
from tests.browser.looking import DESK, PHONE, faults
from tests.browser.people import Person

pytestmark = [pytest.mark.browser, pytest.mark.stack]
BUG = '''def grade(sample, item):
    """Right when the last word is the answer."""
    words = sample["output_text"].split()
    return float(words[-1] == item["anser"])
'''
MENDED = BUG.replace("anser", "answer")
HANGING = "def grade(sample, item):\n    while True:\n        pass\n"
SUBSTRING = 'def grade(sample, item):\n    return 1.0 if item["answer"] in sample["output_text"] else 0.0\n'


def begin_draft(page: Page, source: str, name: str = "Last word") -> None:
    page.check("input[name=type][value=python]")
    page.fill("input[name=name]", name)
    page.fill("textarea[name=source]", source)
    page.wait_for_url("**/rewards/drafts/*/")
    expect(page.locator("#kept")).to_contain_text("Kept")
    page.click("button:has-text('Try it in the Lab')")
    expect(page.get_by_role("button", name="Check")).to_be_visible()


def run(page: Page, state: str = "done") -> None:
    with page.expect_navigation(url="**run=*"):
        page.click("button:has-text('Run')")
    expect(page.locator("#run .panel-head .badge").first).to_have_text(state, timeout=PATIENCE_MS)


def try_text(page: Page, answer: str = "42", item: str = '{"answer": "42"}') -> None:
    page.check("input[name=try-on][value=text]")
    page.fill("textarea[name=try-output_text]", answer)
    page.fill("textarea[name=try-item]", item)


def figure(page: Page, name: str) -> Any:
    return page.locator(".lab-figures > div", has=page.locator("dt", has_text=name)).locator("dd")


def test_a_planted_bug_is_found_at_its_line_mended_and_made_a_reward(visit: Callable[..., Page], alice: Person) -> None:
    alice.dataset("lab rows")
    page = visit("/rewards/new/")
    begin_draft(page, BUG)
    page.reload()
    expect(page.locator("textarea[name=source]")).to_have_value(BUG)
    expect(page.locator("input[name=name]")).to_have_value("Last word")

    run(page)
    expect(page.locator(".source-errors")).to_contain_text("Line 4 20 cases")
    expect(page.locator(".source-errors")).to_contain_text("KeyError: 'anser'")
    expect(page.locator(".code-line.is-bad")).to_have_text(BUG.split("\n")[3], use_inner_text=False)
    expect(page.locator(".code-gutter .is-bad")).to_have_text("4")

    page.fill("textarea[name=source]", MENDED)
    expect(page.locator(".code-line.is-bad")).to_have_count(0)
    run(page)
    expect(figure(page, "Mean reward")).to_have_text("1")
    expect(figure(page, "Graded differently")).to_have_text("0")
    expect(page.locator("#run .histogram")).to_have_attribute("aria-label", re.compile("20 of 20"))

    page.click("button:has-text('Create reward')")
    expect(page.locator("main")).to_contain_text("Used by")
    page.get_by_role("link", name="Try it in the Lab").click()
    expect(figure(page, "Mean reward")).to_have_text("1")


def test_a_syntax_error_is_shown_at_its_line_before_anything_runs(visit: Callable[..., Page], watch: Watch) -> None:
    watch.allow("/rewards/drafts/")
    page = visit("/rewards/new/")
    begin_draft(page, "def grade(sample, item):\n    return 1 +\n")
    page.click("button:has-text('Check')")
    expect(page.locator("#id_source_error")).to_contain_text("line 2: invalid syntax")
    expect(page.locator(".code-gutter .is-bad")).to_have_text("2")
    page.fill("textarea[name=source]", MENDED)
    page.click("button:has-text('Check')")
    expect(page.get_by_text("It can grade.")).to_be_visible()


def test_a_substring_reward_is_shown_what_it_pays_for(visit: Callable[..., Page]) -> None:
    page = visit("/rewards/new/")
    begin_draft(page, SUBSTRING)
    page.check("input[name=try-on][value=corpus]")
    run(page)
    expect(figure(page, "False accepts")).to_have_class("is-bad")
    shotgun = page.locator(".kind", has=page.locator(".kind-name", has_text="Shotgun")).first
    shotgun.evaluate("kind => (kind.open = true)")
    expect(shotgun).to_contain_text("Listing candidates is paid")
    expect(shotgun.locator(".fault-text").first).to_be_visible()


def test_the_editor_indents_and_lets_the_keyboard_out(visit: Callable[..., Page]) -> None:
    page = visit("/rewards/new/")
    page.check("input[name=type][value=python]")
    area = page.locator("textarea[name=source]")
    area.fill("def grade(sample, item):")
    area.press("End")
    area.press("Enter")
    page.keyboard.type("return 1")
    expect(area).to_have_value("def grade(sample, item):\n    return 1")
    area.press("Tab")
    expect(area).to_have_value("def grade(sample, item):\n    return 1    ")
    area.press("Shift+Tab")
    expect(area).to_have_value("def grade(sample, item):\nreturn 1    ")
    area.press("Escape")
    area.press("Tab")
    expect(area).not_to_be_focused()
    expect(area).to_have_attribute("aria-describedby", re.compile("id_source_keys"))


def test_a_reward_that_hangs_shows_its_progress_and_is_stopped(visit: Callable[..., Page], alice: Person) -> None:
    alice.dataset("lab rows")
    page = visit("/rewards/new/")
    begin_draft(page, HANGING)
    run(page, "running")
    expect(page.locator("#run-progress")).to_contain_text("of 20 graded")
    page.reload()
    expect(page.locator("#run-progress")).to_be_visible()
    page.click("#run button:has-text('Stop')")
    expect(page.locator("#run .panel-head .badge").first).to_have_text("stopped")
    expect(page.locator("#run")).to_contain_text("What had been graded by then is shown")
    page.fill("textarea[name=source]", MENDED)
    run(page)


@pytest.fixture(scope="module")
def tried(alice: Person) -> dict[str, str]:
    """Addresses of pages with a result of each sort."""
    alice.dataset("lab rows")
    made = {}
    for name, source in (("bug", BUG), ("substring", SUBSTRING)):
        grader = {"name": name, "grader": {"type": "python", "source": source}}
        reward = alice.api.post("rewards/", json=grader).json()["id"]
        on = {"type": "corpus"} if name == "substring" else {"type": "text", "samples": [{"output_text": "42", "item": {"answer": "42"}}]}
        answer = alice.api.post(f"rewards/{reward}/run/", json={"on": on, "repeats": 2})
        assert answer.status_code == 201, answer.text
        made[name] = f"/rewards/{reward}/lab/"
    return made


@pytest.mark.parametrize("name", ["bug", "substring", "draft"])
def test_axe_finds_nothing_and_nothing_overflows(visit: Callable[..., Page], tried: dict[str, str], name: str) -> None:
    page = visit(tried.get(name, "/rewards/new/"), dark=True, width=PHONE)
    if name == "draft":
        begin_draft(page, BUG)
        page.reload()
        try_text(page)
        run(page)
    expect(page.locator(".lab-figures")).to_be_visible(timeout=PATIENCE_MS)
    for details in page.locator("details").all():
        details.evaluate("element => (element.open = true)")
    assert faults(page, PHONE, DESK) == []
