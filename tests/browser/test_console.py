"""The operators' console in a real browser, over jobs that run: live, axe finds nothing, nothing overflows on a phone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import PATIENCE_MS, Watch
from tests.browser.looking import DESK, PHONE, faults, overflow
from tests.browser.people import Person, operator_session, seed
from tests.browser.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack, pytest.mark.timeout(300)]
PAGES = (
    "/console/",
    "/console/tenants/",
    "/console/tenants/{tenant}/",
    "/console/what-if/",
    "/console/engines/",
    "/console/audit/",
    "/console/act/?deed=policy",
    "/console/act/?deed=tenant-credit&about={tenant}",
    "/console/act/?deed=job-stop&about={job}",
)


@pytest.fixture(scope="module")
def busy(stack: Stack) -> dict[str, str]:
    """Two organisations with long jobs, and one with a name that does not want to fit."""
    people = [seed(stack, f"{name.lower()}@example.org", f"{name} {'Laboratories ' * 3}") for name in ("Ada", "Bea")]
    jobs = [person.job(steps=400, name=f"Long sums {n}") for person in people for n in range(3)]
    return {"job": jobs[0], "tenant": people[0].api.get("me/").json()["tenant"]["id"]}


@pytest.fixture(scope="module")
def key(stack: Stack) -> str:
    return operator_session(stack)


@pytest.fixture
def look(stack: Stack, chromium: Browser, busy: dict[str, str], key: str, watch: Watch) -> Iterator[Callable[..., Page]]:
    opened: list[Any] = []

    def open_page(path: str, *, dark: bool = False, width: int = DESK) -> Page:
        context = chromium.new_context(
            base_url=stack.url,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        context.add_cookies([{"name": "sessionid", "value": key, "url": stack.url}])
        context.set_default_timeout(PATIENCE_MS)
        opened.append(context)
        page = context.new_page()
        watch.page(page)
        page.goto(path.format(**busy))
        if path == "/console/":
            page.wait_for_function("() => document.querySelector('#console-link').dataset.tone === 'good'")
            page.wait_for_function("() => document.querySelectorAll('#gantt rect').length > 0")
        return page

    yield open_page
    for context in opened:
        context.close()


@pytest.mark.parametrize("path", PAGES)
def test_it_fits_a_phone_and_axe_finds_nothing_in_either_theme(look: Callable[..., Page], path: str) -> None:
    page = look(path, dark=True, width=PHONE)
    assert overflow(page) == 0
    assert faults(page, DESK) == []


def test_the_overview_is_live(look: Callable[..., Page], stack: Stack) -> None:
    """Steps that commit while one looks appear by themselves, and all open jobs are there."""
    dora = seed(stack, "dora@example.org", "Dora")
    jobs = [dora.job(steps=400, name=f"Live sums {n}") for n in range(3)]
    page = look("/console/")
    page.wait_for_function("n => document.querySelectorAll('#jobs tr').length >= n", arg=len(jobs))
    before = page.inner_text("#note-rollout")
    page.wait_for_function("before => document.querySelector('#note-rollout').textContent !== before", arg=before)
    page.click("[data-zoom='60']")
    page.wait_for_function("() => document.querySelector('#gantt').getAttribute('aria-label').includes('last 1m')")
    for job in jobs:  # whoever comes next need not wait behind them
        dora.api.post(f"jobs/{job}/cancel/").raise_for_status()


def test_a_lost_server_is_said(look: Callable[..., Page], watch: Watch) -> None:
    watch.allow("/console/live/")
    page = look("/console/")
    page.route("**/console/live/**", lambda route: route.abort())
    page.wait_for_function("() => document.body.classList.contains('console-stale')")
    assert "what you see is old" in page.inner_text("#console-link")
    page.unroute("**/console/live/**")
    page.wait_for_function("() => !document.body.classList.contains('console-stale')")


def test_a_job_is_stopped_from_the_console(look: Callable[..., Page], stack: Stack) -> None:
    person: Person = seed(stack, "cleo@example.org", "Cleo")
    job = person.job(steps=400)
    page = look(f"/console/act/?deed=job-stop&about={job}")
    page.fill("textarea[name=reason]", "it fills the disk")
    page.click("button:has-text('Stop the job')")
    page.wait_for_url("**/console/")
    while person.api.get(f"jobs/{job}/").json()["state"] != "cancelled":
        page.wait_for_timeout(100)
