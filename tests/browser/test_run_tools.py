"""Zoom, smoothing, broken steps, hostile events, and the keyboard: what only a browser shows of the run page and the palette."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import PATIENCE_MS
from tests.browser.people import Person
from tests.portal.pages.test_hostile import CORPUS

pytestmark = [pytest.mark.browser, pytest.mark.stack]
Visit = Callable[..., Page]


@pytest.fixture(scope="module")
def job(alice: Person) -> str:
    return alice.job(steps=12, name="Tools")


def open_run(visit: Visit, job: str) -> Page:
    page = visit(f"/jobs/{job}/")
    expect(page.locator("#run-state")).to_have_text("succeeded", timeout=PATIENCE_MS)
    page.wait_for_function("() => document.querySelector('[data-chart=reward]').dataset.drawn")
    return page


def test_a_zoom_stops_following_until_it_is_told_to_go_back(visit: Visit, job: str) -> None:
    page = open_run(visit, job)
    box = page.locator("[data-chart=reward] .u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 60, steps=4)
    page.mouse.up()
    expect(page.locator("#zoom-live")).to_be_visible()
    expect(page.locator("#zoom-words")).to_contain_text("Versions")
    page.click("#zoom-live")
    expect(page.locator("#zoom-words")).to_have_text("All steps")
    expect(page.locator("#zoom-live")).to_be_hidden()


def test_the_keyboard_zooms_too(visit: Visit, job: str) -> None:
    page = open_run(visit, job)
    page.locator("[data-chart=reward] .chart-stage").focus()
    page.keyboard.press("+")
    expect(page.locator("#zoom-words")).to_contain_text("Versions")
    page.keyboard.press("0")
    expect(page.locator("#zoom-words")).to_have_text("All steps")


def test_smoothing_does_not_depend_on_how_the_history_was_sampled(visit: Visit) -> None:
    steady, sampled = visit("/").evaluate(
        """async () => {
          const { smoothed } = await import("/static/js/chart-view.js");
          const xs = [...Array(256).keys()];
          const values = xs.map((x) => (x < 128 ? 0 : 1));
          const coarse = xs.filter((x) => x % 16 === 15);
          return [smoothed(xs, values, 0.95).at(-1), smoothed(coarse, coarse.map((x) => values[x]), 0.95).at(-1)];
        }"""
    )
    assert steady == pytest.approx(sampled, abs=0.02)


def altered(page: Page, change: Callable[[dict[str, Any]], None]) -> None:
    """The history that the run page begins with, changed on its way."""

    def fulfil(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        change(found)
        route.fulfill(response=answer, body=json.dumps(found))

    page.route("**/overview/", fulfil)


def test_a_step_that_was_no_number_is_marked_and_told(visit: Visit, job: str) -> None:
    page = open_run(visit, job)

    def break_one(found: dict[str, Any]) -> None:
        step = next(event["data"] for event in found["events"] if event["kind"] == "step" and event["data"]["version"] == 5)
        step.update(skipped="nonfinite", grad_norm=None, loss=None)

    altered(page, break_one)
    page.reload()
    expect(page.locator("#run-state")).to_have_text("succeeded")
    expect(page.locator("#steps tr.broken")).to_have_count(1)
    stage = page.locator("[data-chart=reward] .chart-stage")
    stage.focus()
    for key in ("Home", *["ArrowRight"] * 5):
        page.keyboard.press(key)
    assert stage.get_attribute("aria-valuetext").startswith("not finite · step 5")


@pytest.mark.parametrize("hostile", CORPUS, ids=range(len(CORPUS)))
def test_hostile_events_stay_text(visit: Visit, job: str, hostile: str) -> None:
    page = open_run(visit, job)

    def poison(found: dict[str, Any]) -> None:
        first = found["events"][0]["at"]
        data = {"code": hostile, "title": hostile, "evidence": hostile, "advice": hostile, "message": hostile, "reason": hostile}
        last = found["events"].pop()
        kinds = ("finding", "warning", "waiting", "rollout_lost", hostile)
        more = [{"seq": last["seq"] + n, "kind": kind, "at": first, "data": {**data, "version": 1}} for n, kind in enumerate(kinds)]
        end = {**last, "seq": last["seq"] + len(kinds), "data": {**last["data"], "reason": hostile}}
        for event in found["events"]:
            if event["kind"] == "step":
                event["data"]["rollout"]["parts"] = {hostile: {"mean": 0.5}, "b": {"mean": 0.1}}
        found["events"] += [*more, end]
        found["job"]["last_seq"] = end["seq"]

    page.evaluate("window.owned = () => (document.body.dataset.owned = 1)")
    altered(page, poison)
    page.add_init_script("window.owned = () => (document.body.dataset.owned = 1)")
    page.reload()
    expect(page.locator("#doctor-findings")).to_contain_text(hostile.split("\t")[0].strip()[:20])
    page.click("#events > li:nth-child(2) summary")
    assert page.get_attribute("body", "data-owned") is None
    assert page.locator("main img, main iframe, main base, main math").count() == 0


def test_the_palette_finds_pages_and_things_by_keyboard(visit: Visit, job: str) -> None:
    page = visit("/")
    page.keyboard.press("Control+k")
    page.keyboard.type("Tools")
    expect(page.locator("#palette-list")).to_contain_text("Tools")
    expect(page.locator(".palette-item[aria-selected=true]")).to_contain_text("Tools")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{job}/")


def test_keys_lead_to_pages_but_not_while_somebody_types(visit: Visit) -> None:
    page = visit("/")
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs/")
    page.keyboard.press("/")
    page.keyboard.type("gd?")
    assert page.input_value("#j-q") == "gd?"
    assert page.url.endswith("/jobs/")


def test_a_chart_is_saved_as_a_picture(visit: Visit, job: str) -> None:
    page = open_run(visit, job)
    page.click("[data-chart=reward] .chart-table summary")
    with page.expect_download() as download:
        page.click("[data-chart=reward] .chart-png")
    assert download.value.suggested_filename == "reward.png"


def test_what_is_marked_in_the_list_is_compared(visit: Visit, alice: Person, job: str) -> None:
    other = alice.job(steps=3, name="Second")
    page = visit("/jobs/")
    for one in (job, other):
        page.check(f"input[name=job][value={one}]")
    expect(page.locator("#bulk-count")).to_contain_text("2 marked")
    page.click("#bulk >> text=Compare")
    page.wait_for_url("**/jobs/compare/**")
    expect(page.locator(".legend-runs li")).to_have_count(2)
