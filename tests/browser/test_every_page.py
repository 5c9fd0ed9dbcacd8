"""What holds on every page, in both themes: axe finds nothing, nothing overflows on a phone, nothing is missing or logged.

A page is opened once: narrow and dark, under its policy; then it is widened and changes its theme before axe's eyes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.conftest import leave_upload
from tests.browser.looking import DESK, PHONE, faults, overflow
from tests.browser.people import Person
from tests.browser.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.stack]
OPEN = (
    "/accounts/login/",
    "/accounts/signup/",
    "/accounts/confirm-email/",
    "/accounts/confirm-email/none/",
    "/accounts/password/reset/",
    "/prices/",
    "/api/docs/",
    "/api/docs/?q=checkpoints",
)
OWN = (
    "/",
    "/gallery/",
    "/notifications/",
    "/jobs/",
    "/jobs/?show=open",
    "/jobs/?show=archived&q=nothing",
    "/jobs/compare/",
    "/jobs/compare/?job={job}&job={agent}&x=tokens",
    "/jobs/new/",
    "/jobs/new/?preset=almanac",
    "/jobs/{job}/",
    "/jobs/{agent}/",
    "/jobs/new/?from={job}&version=2",
    "/jobs/{job}/rollouts/",
    "/jobs/{job}/rollouts/?version=2&colour=advantage",
    "/jobs/{agent}/rollouts/?version=2&colour=probability",
    "/jobs/{job}/rollouts/2/3/1/",
    "/jobs/{job}/rollouts/rows/3/",
    "/jobs/{job}/checkpoints/",
    "/jobs/{job}/evaluation/latest/",
    "/jobs/{job}/evaluation/6/?show=loss",
    "/playground/{job}/?step=4&against=2",
    "/datasets/",
    "/datasets/new/",
    "/datasets/generate/",
    "/datasets/import/",
    "/datasets/uploads/{upload}/",
    "/datasets/{dataset}/",
    "/rewards/",
    "/rewards/new/",
    "/rewards/{reward}/",
    "/rewards/{reward}/lab/",
    "/rewards/{reward}/probe/",
    "/rewards/{probed}/probe/",
    "/usage/",
    "/usage/?show=tokens",
    "/billing/",
    "/prices/",
    "/settings/",
    "/settings/members/",
    "/settings/retention/",
    "/settings/audit/",
    "/settings/delete/",
    "/organisations/new/",
    "/api/docs/?q=billing",
    "/settings/tokens/",
    "/settings/tokens/new/",
    "/accounts/email/",
    "/accounts/password/change/",
    "/accounts/2fa/",
    "/accounts/sessions/",
    "/accounts/reauthenticate/",
    "/accounts/logout/",
)


# What axe looks at on a phone too; the others have nothing there that they have not on a desk.
ALSO_ON_A_PHONE = {
    *("/", "/jobs/", "/jobs/{job}/", "/settings/tokens/"),
    *("/rewards/", "/rewards/new/", "/datasets/", "/datasets/new/", "/datasets/generate/", "/datasets/import/"),
}


@pytest.fixture(scope="session")
def ids(alice: Person, chromium: Browser, stack: Stack, signed_in: Any) -> dict[str, str]:
    return {
        "job": alice.job(steps=6),
        "agent": alice.job(steps=6, name="Agent", environment={"type": "tools", "max_tokens": 64}),
        "dataset": alice.dataset("with a very long name that does not want to fit"),
        "reward": alice.reward(),
        "probed": alice.probed(),
        "upload": leave_upload(chromium, stack, signed_in),
    }


def settled(page: Page, path: str) -> Page:
    if path in ("/jobs/{job}/", "/jobs/{agent}/", "{job}"):
        page.wait_for_function("() => document.querySelector('#run-state').textContent === 'succeeded'")
        page.wait_for_function("() => Number(document.querySelector('[data-chart=reward]').dataset.points) === 7")
    return page


@pytest.mark.parametrize("path", [*OPEN, *OWN])
def test_it_fits_a_phone_and_axe_finds_nothing_in_either_theme(visit: Callable[..., Page], ids: dict[str, str], path: str) -> None:
    page = settled(visit(path.format(**ids), anonymous=path in OPEN, dark=True, width=PHONE), path)
    assert overflow(page) == 0
    assert faults(page, *((PHONE, DESK) if path in ALSO_ON_A_PHONE else (DESK,))) == []


def test_canvas_colours_follow_the_theme(visit: Callable[..., Page], ids: dict[str, str]) -> None:
    """The chart's text and lines are drawn again from the tokens when the theme is switched by hand."""
    page = settled(visit(f"/jobs/{ids['job']}/"), "/jobs/{job}/")
    light = page.evaluate(_PIXELS)
    page.click(".menu-up summary")
    page.click("[data-theme-choice=dark]")
    dark = page.evaluate(_PIXELS)
    assert light != dark
    page.reload()
    assert page.get_attribute("html", "data-theme") == "dark"


_PIXELS = """() => {
  const canvas = document.querySelector("[data-chart=reward] canvas");
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let i = 0; i < pixels.length; i += 4) if (pixels[i + 3] === 255) seen.add(`${pixels[i]},${pixels[i + 1]},${pixels[i + 2]}`);
  return [...seen].sort().join(" ");
}"""


def test_what_is_not_there_says_so_kindly(visit: Callable[..., Page], stack: Stack, watch) -> None:
    watch.allow("/jobs/job_nobody/")
    page = visit("/jobs/job_nobody/")
    assert page.inner_text("h1") == "There is nothing at this address"
    assert stack.url in page.url


def test_a_long_name_pushes_no_figure_over_another(visit: Callable[..., Page], ids: dict[str, str]) -> None:
    settled(visit(f"/jobs/{ids['job']}/"), "{job}")
    page = visit("/jobs/")
    overlap = page.evaluate(
        """id => {
          const row = document.querySelector(`.jobs-table a[href*="${id}"]`).closest("tr");
          row.querySelector("a").textContent = "Sums of <b>very</b> ".repeat(9);
          row.querySelector(".hide-narrow .clip").textContent = "Numbers that are ".repeat(9);
          const right = (node) => node.getBoundingClientRect().right;
          const reward = row.querySelector(".reward-cell");
          return Math.max(right(reward), right(reward.lastElementChild)) - row.querySelector(".step-cell").getBoundingClientRect().left;
        }""",
        ids["job"],
    )
    assert overlap <= 0
