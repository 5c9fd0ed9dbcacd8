"""What an open page is looked at for: axe's findings in either theme, and whether it fits."""

from __future__ import annotations

from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Page

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
PHONE, DESK = 390, 1440
_THERE = "() => window.axe !== undefined"
_RUN = "() => axe.run().then(({ violations }) => violations.map(v => [v.id, v.nodes.map(n => n.target.join(' '))]))"
# Colours that are on their way from one theme to the other are of neither. One that arrives sets its children going.
_ARRIVED = """() => {
  const going = () => document.getAnimations().filter((one) => one instanceof CSSTransition);
  for (let some = going(); some.length; some = going()) some.forEach((one) => one.finish());
}"""


def violations(page: Page) -> list:
    """[axe's rule, what breaks it]; as the page stands now."""
    if not page.evaluate(_THERE):
        page.evaluate(AXE)
    return page.evaluate(_RUN)


def overflow(page: Page) -> int:
    """By how many pixels its content is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")


def faults(page: Page, *widths: int) -> list[str]:
    """All of it, in both themes at each of ``widths``. Of one visit, since it is the opening of a page that takes time."""
    found = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": 900})
        if pixels := overflow(page):
            found.append(f"{width}: {pixels} pixels too wide")
        for theme in ("dark", "light"):
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            page.evaluate(_ARRIVED)
            found += [f"{width} {theme}: {rule} {where}" for rule, where in violations(page)]
    return found
