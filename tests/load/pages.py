"""``python -m tests.load.pages --json F``: how long charts take to draw, and pages of long histories to be served.

Charts: the pages' own component (static/js/chart.js) in headless Chromium, from its making, or from new points, until the frame with it
was painted; each time another figure. Pages: a real portal over SQLite with one job of ten thousand steps among ten thousand jobs, from
the request to the last byte of the answer. A median decides, since one slow draw is the machine's; the worst is told beside it.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

from tests.browser.conftest import CHROMIUM, FLAGS, sign_in
from tests.browser.people import Person, seed
from tests.browser.stack import ROOT, Stack
from tests.load.live import session_of
from tests.load.output import tell
from tests.load.standing import stack_up

FIRST_DRAW_MS, UPDATE_MS, PAGE_MS = 300.0, 100.0, 200.0
SEED_SECONDS = 900.0
WARM_UP = 2
_PAUSE = threading.Event()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every median is within its limit."""
    options = parser().parse_args(arguments)
    console = Console(stderr=True)
    with stack_up(console) as stack:
        alice = seed(stack, "alice@example.org", "Alice's lab")
        with console.status("writing histories"):
            job = with_histories(stack, alice, options)
        with console.status("measuring"):
            found = summary(charts(stack, alice, job, options), pages(stack, alice, job, options.repeats), options)
    return tell(found, options.json, Console())


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m tests.load.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--series", type=int, default=32, help="default: %(default)s")
    cli.add_argument("--points", type=int, default=10_000, help="of each series; default: %(default)s")
    cli.add_argument("--steps", type=int, default=10_000, help="of the long job; default: %(default)s")
    cli.add_argument("--jobs", type=int, default=10_000, help="default: %(default)s")
    cli.add_argument("--events", type=int, default=60, help="of each of the other jobs; default: %(default)s")
    cli.add_argument("--repeats", type=int, default=9, help="of each measurement; default: %(default)s")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


def with_histories(stack: Stack, person: Person, options: argparse.Namespace) -> str:
    """The id of the long job."""
    job = person.job(steps=2, name="Long")
    while person.api.get(f"jobs/{job}/").json()["state"] != "succeeded":
        _PAUSE.wait(0.2)
    stack.manage("shell", "-c", f"from portal.jobs.models import *; JobEvent.objects.filter(job__public_id={job!r}).delete()")
    sizes = ("--steps", options.steps, "--jobs", options.jobs, "--events", options.events)
    command = (sys.executable, "-m", "tests.load.histories", job, *map(str, sizes))
    subprocess.run(command, cwd=ROOT, env=stack.environment, check=True, timeout=SEED_SECONDS)
    return job


def charts(stack: Stack, person: Person, job: str, options: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds of each try: first_draw, update, and open: from the address of the long run to its drawn curve."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=next(filter(None, map(shutil.which, CHROMIUM))), args=list(FLAGS))
        context = browser.new_context(base_url=stack.url, storage_state=sign_in(browser, stack, person), viewport=_SIZE)
        page = context.new_page()
        page.goto("/")
        drawn = page.evaluate(DRAW, {"series": options.series, "points": options.points, "repeats": options.repeats + WARM_UP})
        found = {name: times[WARM_UP:] for name, times in drawn.items()}
        found["open"] = [opened(browser, context, job) for _ in range(WARM_UP + options.repeats)][WARM_UP:]
        browser.close()
    return found


def opened(browser: Browser, context: Any, job: str) -> float:
    page = context.new_page()

    def until_drawn() -> None:
        page.goto(f"/jobs/{job}/")
        page.wait_for_function("() => document.querySelector('[data-chart=reward]').dataset.drawn")

    milliseconds = took(until_drawn)
    page.close()
    return milliseconds


def pages(stack: Stack, person: Person, job: str, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each try by address."""
    paths = {
        "run": f"/jobs/{job}/",
        "run overview": f"/jobs/{job}/overview/",
        "checkpoints": f"/jobs/{job}/checkpoints/",
        "jobs": "/jobs/",
        "jobs, last page": "/jobs/?page=9999",
        "jobs by name": "/jobs/?q=it+77",
        "api jobs": "/api/v1/jobs/",
        "home": "/",
    }
    with client(stack, session_of(stack, person)) as asking:
        return served_each(asking, paths, repeats)


def client(stack: Stack, session: str) -> httpx.Client:
    """Asks as the person whose session it is."""
    return httpx.Client(base_url=stack.url, cookies={"sessionid": session}, timeout=60, trust_env=False)


def served_each(asking: httpx.Client, paths: dict[str, str], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of each try by name, from the request to the last byte of the answer. Raises ``HTTPStatusError``."""
    return {name: [_served(asking, path) for _ in range(WARM_UP + repeats)][WARM_UP:] for name, path in paths.items()}


def _served(asking: httpx.Client, path: str) -> float:
    return took(lambda: asking.get(path).raise_for_status())


def took(act: Callable[[], object]) -> float:
    """Milliseconds."""
    begin = perf_counter()
    act()
    return 1000 * (perf_counter() - begin)


def summary(drawn: dict[str, list[float]], served: dict[str, list[float]], options: argparse.Namespace) -> dict[str, Any]:
    """Median and worst of each in milliseconds; ``holds``: every median with a limit is within it."""
    limits = {"first_draw": FIRST_DRAW_MS, "update": UPDATE_MS, **dict.fromkeys(served, PAGE_MS)}
    figures = figures_of(drawn | served)
    late = [name for name, limit in limits.items() if figures[name]["median"] >= limit]
    sizes = {name: getattr(options, name) for name in ("series", "points", "steps", "jobs", "events")}
    return {**sizes, "limits": limits, "milliseconds": figures, "late": late, "holds": not late}


def figures_of(times: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    return {name: {"median": round(statistics.median(tries), 1), "worst": round(max(tries), 1)} for name, tries in times.items()}


_SIZE = {"width": 1440, "height": 900}
# A walk of each series, drawn from a seed; each try has a figure of its own, as the first draw of a page has.
DRAW = """async ({ series, points, repeats }) => {
  const { Chart } = await import("/static/js/chart.js");
  const { View } = await import("/static/js/chart-view.js");
  const { el } = await import("/static/js/dom.js");
  document.head.append(el("link", { rel: "stylesheet", href: "/static/vendor/uplot/uPlot.min.css" }));
  let state = 1;
  const chance = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const values = Array(series).fill(0.5);
  const point = (x) => ({ x, first: x, y: values.map((y, i) => (values[i] = y + (chance() - 0.5) / 50)) });
  const history = Array.from({ length: points }, (_, i) => point(i + 1));
  const dashes = [undefined, [7, 4], [2, 3], [10, 4, 2, 4]];
  const runs = Array.from({ length: series }, (_, i) => ({ label: `run ${i}`, token: `--series-${i % 8}`, dash: dashes[(i >> 3) % 4] }));
  const told = runs.map(({ label }, i) => ({ label, quiet: true, text: ({ y }) => y[i].toFixed(3) }));
  const spec = {
    name: "load", height: 280, axisSize: 54, xLabel: "step", tick: String,
    series: runs, columns: [{ label: "step", text: ({ x }) => String(x) }, ...told],
  };
  const painted = () => new Promise((done) => requestAnimationFrame(() => {
    const channel = new MessageChannel();
    channel.port1.onmessage = done;
    channel.port2.postMessage(null);
  }));
  const found = { first_draw: [], update: [] };
  for (let i = 0; i < repeats; i += 1) {
    const stage = el("div", { class: "chart-stage", tabindex: "0", role: "slider" });
    const figure = el("figure", { class: "panel chart", "data-chart": "load" }, el("output", { class: "chart-readout" }), stage);
    document.querySelector("#content").prepend(figure);
    await painted();
    let begin = performance.now();
    const chart = new Chart(figure, spec, new View());
    chart.update(history);
    while (!figure.dataset.drawn) await painted();
    await painted();
    found.first_draw.push(performance.now() - begin);
    const longer = [...history, point(points + 1)];
    begin = performance.now();
    chart.update(longer);
    await painted();
    found.update.push(performance.now() - begin);
    figure.remove();
  }
  return found;
}"""


if __name__ == "__main__":
    sys.exit(main())
