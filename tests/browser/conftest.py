"""One stack and one Chromium for all browser tests. Every page that a test opens is watched: a console error or a CSP report fails it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Response, sync_playwright

from tests.browser.people import PASSWORD, Person, seed
from tests.browser.stack import Stack, free_port

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update")
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 45_000
# Tells of every socket that a page opens, so that a test can cut it.
KEEP_SOCKETS = """
window.sockets = [];
window.WebSocket = class extends window.WebSocket {
  constructor(...given) { super(...given); window.sockets.push(this); }
};
"""


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    running = Stack(tmp_path_factory.mktemp("state"), port=free_port(), engine_port=free_port())
    try:
        yield running.start()
    finally:
        running.stop()
        shutil.rmtree(running.runtime, ignore_errors=True)


@pytest.fixture(scope="session")
def alice(stack: Stack) -> Person:
    return seed(stack, "alice@example.org", "Alice's lab")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def signed_in(stack: Stack, alice: Person, chromium: Browser) -> Any:
    return sign_in(chromium, stack, alice)


def sign_in(browser: Browser, stack: Stack, person: Person) -> Any:
    """The person's cookies, got by the login page."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{stack.url}/accounts/login/")
    page.fill("input[name=login]", person.email)
    page.fill("input[name=password]", PASSWORD)
    page.click("button:has-text('Sign in')")
    page.wait_for_url(f"{stack.url}/")
    state = context.storage_state()
    context.close()
    return state


def leave_upload(browser: Browser, stack: Stack, signed_in: Any) -> str:
    """The id of an upload with a report of errors and columns to choose, left on its page."""
    context = browser.new_context(base_url=stack.url, storage_state=signed_in)
    page = context.new_page()
    page.goto("/datasets/new/")
    rows = [{"question": f"How much is {n} and {n}?", "answer": f"Twice {n}.\n#### {2 * n}"} for n in range(40)]
    text = "\n".join(map(json.dumps, rows)) + '\n{"question": ""}\n{broken\n'
    page.set_input_files("input[name=file]", {"name": "questions.jsonl", "mimeType": "text/plain", "buffer": text.encode()})
    page.click("text=Check and store")
    page.wait_for_url("**/datasets/uploads/*/")
    upload = page.url.rstrip("/").rpartition("/")[2]
    context.close()
    return upload


class Watch:
    """What went wrong on a page besides what the test looks at. ``allow``: addresses whose refusal the test provokes."""

    def __init__(self) -> None:
        self.allowed: list[str] = []
        self.faults: list[str] = []

    def allow(self, fragment: str) -> None:
        self.allowed.append(fragment)

    def page(self, page: Page) -> None:
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"uncaught: {error}"))
        page.on("response", self._response)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not self._is_allowed(f"{message.text} {message.location.get('url', '')}"):
            self.faults.append(f"console: {message.text} {message.location}")

    def _response(self, response: Response) -> None:
        if response.status >= 400 and not self._is_allowed(response.url):
            self.faults.append(f"{response.status} {response.url}")

    def _is_allowed(self, text: str) -> bool:
        return any(fragment in text for fragment in self.allowed)


@pytest.fixture
def watch(stack: Stack) -> Iterator[Watch]:
    reports = stack.log_dir / "csp-reports.jsonl"
    before = _lines(reports)
    watch = Watch()
    yield watch
    assert watch.faults == []
    assert _lines(reports)[len(before) :] == []


@pytest.fixture
def visit(stack: Stack, chromium: Browser, signed_in: Any, watch: Watch) -> Iterator[Callable[..., Page]]:
    """``visit(path)`` opens a page as Alice; ``anonymous``, ``dark`` and ``width`` change the context."""
    opened: list[BrowserContext] = []

    def open_page(path: str, *, anonymous: bool = False, dark: bool = False, width: int = 1440) -> Page:
        context = chromium.new_context(
            base_url=stack.url,
            storage_state=None if anonymous else signed_in,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
        )
        opened.append(context)
        context.set_default_timeout(PATIENCE_MS)
        context.add_init_script(KEEP_SOCKETS)
        page = context.new_page()
        watch.page(page)
        page.goto(path)
        return page

    yield open_page
    for context in opened:
        context.close()


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
