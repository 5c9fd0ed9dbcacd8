"""``python -m tests.browser.screenshots [DIR] [--only TEXT]``: every page, wide and narrow, light and dark, over a stack of its own."""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import CHROMIUM, FLAGS, leave_upload, sign_in
from tests.browser.people import Person, seed
from tests.browser.stack import Stack, free_port
from tests.browser.test_every_page import OPEN, OWN, settled

TALLEST = 8000
_ALL_DRAWN = """() => [...document.querySelectorAll("figure[data-chart]")].every(
  (figure) => figure.dataset.points === "0" || figure.offsetParent === null || figure.dataset.drawn
)"""
WIDTHS = {"wide": 1440, "narrow": 390}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("var/screenshots"))
    parser.add_argument("--only", action="append", default=[], help="pages whose address contains this, as /playground/; may be repeated")
    given = parser.parse_args()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        stack = Stack(Path(state), port=free_port(), engine_port=free_port())
        try:
            take_all(stack.start(), folder, given.only)
        finally:
            stack.stop()
            shutil.rmtree(stack.runtime, ignore_errors=True)


def take_all(stack: Stack, folder: Path, only: list[str]) -> None:
    alice = seed(stack, "alice@example.org", "Alice's lab")
    agent = alice.job(steps=6, name="Agent", environment={"type": "tools", "max_tokens": 64})
    ids = {"job": alice.job(steps=6), "agent": agent, "dataset": alice.dataset(), "reward": alice.reward(), "probed": alice.probed()}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=next(filter(None, map(shutil.which, CHROMIUM))), args=list(FLAGS))
        ids["upload"] = leave_upload(browser, stack, sign_in(browser, stack, alice))
        for width in WIDTHS:
            for theme in ("light", "dark"):
                take(browser, stack, alice, ids, folder, width, theme, only)


def take(browser: Browser, stack: Stack, alice: Person, ids: dict[str, str], folder: Path, width: str, theme: str, only: list[str]) -> None:
    size = {"width": WIDTHS[width], "height": 900}
    anonymous = browser.new_context(base_url=stack.url, viewport=size, color_scheme=theme, reduced_motion="reduce")
    own = browser.new_context(
        base_url=stack.url, viewport=size, color_scheme=theme, reduced_motion="reduce", storage_state=sign_in(browser, stack, alice)
    )
    for context, paths in ((anonymous, OPEN), (own, OWN)):
        page = context.new_page()
        for path in (path for path in paths if not only or any(text in path for text in only)):
            page.goto(path.format(**ids))
            _unfolded(settled(page, path)).screenshot(path=folder / f"{_name(path)}-{width}-{theme}.png", full_page=True)
        context.close()


def _unfolded(page: Page) -> Page:
    """As tall as its content, since charts are drawn only where they can be seen."""
    height = page.evaluate("document.documentElement.scrollHeight")
    page.set_viewport_size({**page.viewport_size, "height": min(TALLEST, height)})
    page.wait_for_function(_ALL_DRAWN)
    page.set_viewport_size({**page.viewport_size, "height": 900})
    return page


def _name(path: str) -> str:
    return path.strip("/").translate(str.maketrans("/?=", "---", "{}")) or "home"


if __name__ == "__main__":
    main()
