"""Following a job live on its run page, over connections that fail."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import PATIENCE_MS, Watch
from tests.browser.people import Person
from tests.browser.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]
Visit = Callable[..., Page]


def points(page: Page, chart: str = "reward") -> int:
    return int(page.get_attribute(f"[data-chart={chart}]", "data-points"))


def wait_for_points(page: Page, at_least: int) -> None:
    page.wait_for_function(
        "n => Number(document.querySelector('[data-chart=reward]').dataset.points) >= n", arg=at_least, timeout=PATIENCE_MS
    )


def wait_for_end(page: Page, state: str) -> None:
    expect(page.locator("#run-state")).to_have_text(state, timeout=PATIENCE_MS)


def show_all(page: Page, table: str) -> None:
    while page.locator(f"#{table}-more").is_visible():
        page.click(f"#{table}-more button")


def shown_steps(page: Page) -> list[int]:
    """Versions in the step table, oldest first."""
    show_all(page, "steps")
    return page.eval_on_selector_all("#steps tbody tr", "rows => rows.map(row => Number(row.dataset.key)).reverse()")


def shown_events(page: Page) -> list[int]:
    show_all(page, "events")
    return page.eval_on_selector_all("#events > li", "items => items.map(item => Number(item.dataset.key)).reverse()")


def assert_complete(page: Page, alice: Person, job: str, steps: int) -> None:
    """The page holds each stored event once, in order, and each step once."""
    assert shown_events(page) == [event["seq"] for event in alice.events(job)]
    assert shown_steps(page) == list(range(1, steps + 1))
    assert points(page) == steps + 1  # and the evaluation of version 0


def test_curve_points_appear_without_a_reload(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=40)}/")
    page.evaluate("window.sameDocument = true")
    wait_for_points(page, 3)
    seen = points(page)
    wait_for_points(page, seen + 3)
    assert page.evaluate("window.sameDocument")
    expect(page.locator("#run-link-text")).to_have_text("Live")


def test_a_finished_job_shows_everything_and_opens_no_socket(visit: Visit, alice: Person) -> None:
    job = alice.job(steps=5)
    wait_for_end(visit(f"/jobs/{job}/"), "succeeded")
    page = visit(f"/jobs/{job}/")
    wait_for_end(page, "succeeded")
    expect(page.locator("#run-link-text")).to_have_text("Complete")
    assert page.evaluate("sockets.length") == 0
    assert_complete(page, alice, job, 5)


def test_a_socket_cut_again_and_again_costs_no_event_and_doubles_none(visit: Visit, alice: Person) -> None:
    job = alice.job(steps=40)
    page = visit(f"/jobs/{job}/")
    for cut in range(1, 5):
        wait_for_points(page, 4 * cut)
        page.wait_for_function("() => sockets.at(-1).readyState === WebSocket.OPEN")
        page.evaluate("sockets.at(-1).close()")
    wait_for_end(page, "succeeded")
    assert page.evaluate("sockets.length") >= 5
    assert_complete(page, alice, job, 40)


def test_messages_lost_on_the_way_are_fetched_again(visit: Visit, alice: Person) -> None:
    job = alice.job(steps=30)
    page = visit("/jobs/")
    page.add_init_script(
        """
        // Every third message is swallowed, but not the last ones: those would only be missed at the next ping.
        let heard = 0;
        const arrives = (event) => JSON.parse(event.data).last > 80 || ++heard % 3;
        const listen = WebSocket.prototype.addEventListener;
        WebSocket.prototype.addEventListener = function (kind, handler) {
          return listen.call(this, kind, kind === "message" ? (event) => arrives(event) && handler(event) : handler);
        };
        """
    )
    page.goto(f"/jobs/{job}/")
    wait_for_end(page, "succeeded")
    assert_complete(page, alice, job, 30)


def test_the_web_process_dies_and_comes_back(visit: Visit, alice: Person, stack: Stack, watch: Watch) -> None:
    for fault in ("WebSocket connection", "ERR_CONNECTION_REFUSED", "502", "htmx:"):
        watch.allow(fault)
    job = alice.job(steps=600)  # more than any machine trains while the web process starts
    page, jobs = visit(f"/jobs/{job}/"), visit("/jobs/")
    wait_for_points(page, 4)
    stack.kill("web")
    expect(page.locator("#run-stale")).to_be_visible(timeout=PATIENCE_MS)
    expect(page.locator("#run-stale")).to_contain_text("Connection lost")
    expect(jobs.locator("#polls-failed")).to_contain_text("Connection lost")
    stack.launch("web")
    expect(page.locator("#run-link-text")).to_have_text("Live", timeout=PATIENCE_MS)
    expect(page.locator("#run-stale")).to_be_hidden()
    expect(jobs.locator("#polls-failed")).to_have_count(0, timeout=PATIENCE_MS)
    stop(page)
    assert_complete(page, alice, job, sum(event["kind"] == "step" for event in alice.events(job)))


def tell_reach(stack: Stack, what: str) -> None:
    """As the ingester does when the engine is lost or found."""
    known = "from django.utils import timezone; from asgiref.sync import async_to_sync; from portal.jobs import announce, reach"
    stack.manage("shell", "-v", "0", "-c", f"{known}; {what}; async_to_sync(announce.announce_reach)()")


def test_an_engine_that_is_away_is_said_without_a_reload_and_taken_back_too(visit: Visit, alice: Person, stack: Stack) -> None:
    run = visit(f"/jobs/{alice.job(steps=600)}/")
    others = [visit("/jobs/"), visit("/")]
    wait_for_points(run, 2)
    tell_reach(stack, "reach.lost('', timezone.now())")
    expect(run.locator("#run-link-text")).to_have_text("Engine away")
    expect(run.locator("#run-phase")).to_have_text("Engine away")
    expect(run.locator("#run-away")).to_be_visible()
    expect(run.locator("#run-away")).to_contain_text("goes on by itself when the engine is back")
    for page in others:
        expect(page.locator(".engine-away").first).to_be_visible()
        expect(page.locator(".notice-warn").first).to_contain_text("The engine has not answered since")
    tell_reach(stack, "reach.found('')")
    expect(run.locator("#run-link-text")).to_have_text("Live")
    expect(run.locator("#run-away")).to_be_hidden()
    expect(run.locator("#run-phase")).not_to_have_text("Engine away")
    for page in others:
        expect(page.locator(".engine-away")).to_have_count(0)
    stop(run)


def test_a_sampler_that_restarts_is_said_by_its_name_and_taken_back_without_a_reload(visit: Visit, alice: Person, stack: Stack) -> None:
    run = visit(f"/jobs/{alice.job(steps=600)}/")
    others = [visit("/jobs/"), visit("/")]
    wait_for_points(run, 2)
    tell_reach(stack, "reach.tell_parts('', dict.fromkeys(reach.PARTS, timezone.now()))")  # both: the fake engine's job works on meanwhile
    expect(run.locator("#run-restarting")).to_be_visible()
    expect(run.locator("#run-restarting")).to_have_text(
        re.compile(r"The (sampler|trainer) has been restarting since [0-9:]+\. Your job goes on by itself when it is back\.")
    )
    expect(run.locator("#run-phase")).to_have_text(re.compile("^(Sampler|Trainer) restarting$"))
    expect(run.locator("#run-link-text")).to_have_text("Live")
    expect(run.locator("#run-away")).to_be_hidden()
    for page in others:
        expect(page.locator(".engine-away").first).to_have_text(re.compile("^(sampler|trainer) restarting$"))
        expect(page.locator(".notice-warn").first).to_contain_text("has been restarting since")
    tell_reach(stack, "reach.tell_parts('', {})")
    expect(run.locator("#run-restarting")).to_be_hidden()
    expect(run.locator("#run-phase")).not_to_have_text(re.compile("restarting"))
    for page in others:
        expect(page.locator(".engine-away")).to_have_count(0)
    stop(run)


@pytest.mark.parametrize("path", ["/jobs/new/", "/playground/{job}/", "/rewards/{reward}/probe/", "/rewards/{reward}/lab/"])
def test_what_needs_the_engine_says_so_at_its_head_and_takes_it_back_without_a_reload(
    visit: Visit, alice: Person, stack: Stack, path: str
) -> None:
    tell_reach(stack, "reach.lost('', timezone.now())")
    page = visit(path.format(job=alice.job(steps=2), reward=alice.reward()))
    notice = page.locator("#engine-away")
    expect(notice).to_contain_text("The engine has not answered since")
    with page.expect_response(lambda answer: answer.request.headers.get("hx-target") == "engine-away"):
        pass
    expect(notice).to_be_visible()  # it looked, and stays
    tell_reach(stack, "reach.found('')")
    expect(notice).to_have_count(0, timeout=PATIENCE_MS)


def test_going_offline_is_said_at_once(visit: Visit, alice: Person, watch: Watch) -> None:
    for fault in ("WebSocket connection", "ERR_INTERNET_DISCONNECTED"):
        watch.allow(fault)
    page = visit(f"/jobs/{alice.job(steps=200)}/")
    expect(page.locator("#run-link-text")).to_have_text("Live")
    page.context.set_offline(True)
    expect(page.locator("#run-stale")).to_be_visible()
    page.context.set_offline(False)
    expect(page.locator("#run-link-text")).to_have_text("Live", timeout=PATIENCE_MS)
    stop(page)


def stop(page: Page) -> None:
    page.click("form[data-action=cancel] button")
    page.click("#confirm-yes")
    wait_for_end(page, "cancelled")


def test_stop_asks_first_and_the_page_changes_when_the_event_arrives(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=200)}/")
    wait_for_points(page, 2)
    page.click("form[data-action=cancel] button")
    page.click("#confirm button:has-text('Keep it')")
    expect(page.locator("#run-state")).to_have_text("running")
    stop(page)
    expect(page.locator("form[data-action=cancel]")).to_be_hidden()
    expect(page.locator("#events")).to_contain_text("stop_requested")


def test_while_a_stop_is_on_its_way_nothing_else_can_be_asked(visit: Visit, alice: Person, stack: Stack) -> None:
    page = visit(f"/jobs/{alice.job(steps=600)}/")
    wait_for_points(page, 2)
    stack.kill("worker")
    try:
        page.click("form[data-action=cancel] button")
        page.click("#confirm-yes")
        expect(page.locator("#run-request-text")).to_contain_text("Stop requested. The engine has not acknowledged it yet.")
        page.reload()
        expect(page.locator("#run-request-text")).to_contain_text("Stop requested. The engine has not acknowledged it yet.")
        expect(page.locator("form[data-action=pause]")).to_be_hidden()
        expect(page.locator("form[data-action=cancel] button")).to_be_disabled()
    finally:
        stack.launch("worker")
    wait_for_end(page, "cancelled")


def test_pause_holds_the_job_and_resume_goes_on(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=200)}/")
    wait_for_points(page, 2)
    page.click("form[data-action=pause] button")
    wait_for_end(page, "paused")
    held = points(page)
    page.click("form[data-action=resume] button")
    wait_for_points(page, held + 2)
    expect(page.locator("#run-state")).to_have_text("running")
    stop(page)


def test_the_certificate_names_the_version_that_was_sampled(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=3)}/")
    wait_for_end(page, "succeeded")
    expect(page.locator("#certificate-text")).to_have_text("128 of 128 completions sampled from version 2")


def test_every_version_can_be_downloaded(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=3)}/")
    wait_for_end(page, "succeeded")
    with page.expect_download() as download:
        page.click("#checkpoints li:last-child a[aria-label^=Download]")
    assert download.value.suggested_filename.endswith("v1.zip")


def test_a_chart_can_be_read_by_keyboard_and_as_a_table(visit: Visit, alice: Person) -> None:
    page = visit(f"/jobs/{alice.job(steps=4)}/")
    wait_for_end(page, "succeeded")
    stage = page.locator("[data-chart=reward] .chart-stage")
    stage.focus()
    page.keyboard.press("Home")
    assert stage.get_attribute("aria-valuenow") == "0"
    page.keyboard.press("ArrowRight")
    assert stage.get_attribute("aria-valuenow") == "1"
    assert "standard deviation 0." in stage.get_attribute("aria-valuetext")
    page.click("[data-chart=reward] .chart-table summary")
    expect(page.locator("[data-chart=reward] .chart-table tbody tr")).to_have_count(5)


def test_an_unknown_kind_of_event_is_kept_and_shown_raw(visit: Visit, alice: Person) -> None:
    job = alice.job(steps=2)
    page = visit(f"/jobs/{job}/")
    wait_for_end(page, "succeeded")
    page.click("#events > li:last-child summary")
    expect(page.locator("#events > li:last-child pre")).to_contain_text('"submitted_at"')
