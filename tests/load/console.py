"""``python -m tests.load.console --json F``: the operators' console beside a busy engine: how long each page takes, and how it looks.

A whole installation: PostgreSQL, Valkey, the portal's processes and the engine in its own; ``--fakes`` puts the engine's fake sampler and
trainer in the place of the models. Thirty-two organisations train a job each, in a crowd of others, for ``--minutes``. Then each page, from
the request to the last byte; in Chromium the overview, from its address until the jobs are drawn; and axe's findings on every page, in
either theme, wide and on a phone. A median decides, since one slow answer is the machine's; the worst is told beside it.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from playwright.sync_api import BrowserContext, Page, sync_playwright
from rich.console import Console

from engine.settings import EngineSettings
from tests.browser.conftest import CHROMIUM, FLAGS
from tests.browser.looking import DESK, PHONE, faults
from tests.browser.people import Person, operator_session, seed
from tests.load.output import tell
from tests.load.pages import PAGE_MS, WARM_UP, client, figures_of, served_each, took
from tests.support.house import House, standing

STEPS = 5000  # more than there is time for
FIRST_STEPS_SECONDS = 300.0
ORDER = {
    "rollout": {"prompts_per_step": 4, "group_size": 4, "max_prompt_tokens": 24, "max_new_tokens": 8},
    "lora": {"rank": 8, "alpha": 16},
}
PAGES = {
    "overview": "/console/",
    "live, 1 minute": "/console/live/?zoom=60",
    "live, 5 minutes": "/console/live/?zoom=300",
    "live, 15 minutes": "/console/live/?zoom=900",
    "organisations": "/console/tenants/",
    "organisations, last page": "/console/tenants/?page=9999",
    "organisations by name": "/console/tenants/?q=crowd+77",
    "organisation": "/console/tenants/{tenant}/",
    "what if": "/console/what-if/",
    "engines": "/console/engines/",
    "acts": "/console/audit/",
    "acts, last page": "/console/audit/?page=9999",
    "acts about one": "/console/audit/?q={tenant}",
    "deed: policy": "/console/act/?deed=policy",
    "deed: credit": "/console/act/?deed=tenant-credit&about={tenant}",
    "deed: stop": "/console/act/?deed=job-stop&about={job}",
}
# Others that the pages must count, find and page through, and a year of operators' deeds.
CROWD = """
from django.utils import timezone
from portal.billing.models import Account, Plan
from portal.console.models import Act
from tenants import walls_rows
from tenants.models import Tenant
with walls_rows.everything():
    crowd = Tenant.objects.bulk_create(Tenant(name=f"Crowd {number}") for number in range(TENANTS))
    plan = Plan.objects.first()
    Account.objects.bulk_create(Account(tenant=tenant, plan=plan) for tenant in crowd)
now, about = timezone.now(), [*(tenant.public_id for tenant in crowd), "engine"]
Act.objects.bulk_create(
    Act(at=now, by="op@example.org", deed="policy", about=about[number % len(about)], reason="the disk is full") for number in range(ACTS)
)
"""
_DRAWN = """() => document.querySelector("#console-link").dataset.tone === "good"
  && document.querySelectorAll("#gantt rect").length > 0 && document.querySelectorAll("#jobs tr").length > 0"""
_PAUSE = threading.Event()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every page's median is within the limit and nothing is found on any."""
    options = parser().parse_args(arguments)
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        fakes = {"FAKE_SAMPLER_SECONDS": "0.8", "FAKE_STEP_SECONDS": "0.1"} if options.fakes else {}
        settings = {
            "MARLAAS_NICENESS": str(EngineSettings.model_fields["niceness"].default),  # as installed
            "MARLAAS_JOB_SLOTS": "8",
            "MARLAAS_STARTING_CREDIT": "1000000",
            **fakes,
        }
        with standing(Path(folder) / "var", real=not options.fakes, **settings) as house:
            found = looked_at(house, options, console)
    return tell(found, options.json, Console())


def parser() -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(
        prog="python -m tests.load.console", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cli.add_argument("--jobs", type=int, default=32, help="that train; default: %(default)s")
    cli.add_argument("--minutes", type=float, default=5.0, help="that they train before anything is measured; default: %(default)s")
    cli.add_argument("--tenants", type=int, default=1000, help="other organisations; default: %(default)s")
    cli.add_argument("--acts", type=int, default=10_000, help="deeds of operators; default: %(default)s")
    cli.add_argument("--repeats", type=int, default=15, help="of each measurement; default: %(default)s")
    cli.add_argument("--fakes", action="store_true", help="no models: the engine's own fakes sample and train")
    cli.add_argument("--shots", type=Path, help="a picture of each page in either theme and width goes there")
    cli.add_argument("--json", type=Path, help="write the figures there")
    return cli


def looked_at(house: House, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    # One each: of an organisation's jobs the earlier goes first.
    people = [seed(house, f"load{number}@example.org", f"Load {number}") for number in range(options.jobs)]
    house.manage("shell", "-c", f"TENANTS, ACTS = {options.tenants}, {options.acts}\n{CROWD}")
    jobs = [person.job(STEPS, f"job {number}", **ORDER) for number, person in enumerate(people)]
    with console.status("waiting for every job's first step"):
        _first_steps(people, jobs)
    with console.status("training"):
        _PAUSE.wait(60 * options.minutes)
    names = {"job": jobs[0], "tenant": people[0].api.get("me/").json()["tenant"]["id"]}
    key = operator_session(house)
    paths = {name: path.format(**names) for name, path in PAGES.items()}
    with console.status("measuring"), client(house, key) as asking:
        served = served_each(asking, paths, options.repeats)
        seen = asking.get(paths["live, 15 minutes"]).json()
    with console.status("looking"):
        drawn, wrong = in_browser(house, key, paths, options)
    states = [person.api.get(f"jobs/{job}/").json() for person, job in zip(people, jobs, strict=True)]
    ended = [f"{state['name']} {state['state']}: {state['state_reason']}" for state in states if state["ended_at"]]
    return summary(served, drawn, engines_own(house, options.repeats), [*ended, *wrong], seen, options)


def _first_steps(people: Sequence[Person], jobs: Sequence[str]) -> None:
    deadline = monotonic() + FIRST_STEPS_SECONDS
    for person, job in zip(people, jobs, strict=True):
        while person.api.get(f"jobs/{job}/").json()["version"] < 1:
            if monotonic() > deadline:
                raise TimeoutError(f"{job} has made no step within {FIRST_STEPS_SECONDS:g} s")
            _PAUSE.wait(0.2)


def engines_own(house: House, repeats: int) -> list[float]:
    """Milliseconds of the engine's answer to what the live overview asks it, without the portal."""
    headers = {"Authorization": f"Bearer {house.environment['MARLAAS_ENGINE_SECRET']}"}
    with httpx.Client(base_url=house.environment["MARLAAS_ENGINE_URL"], headers=headers, timeout=60, trust_env=False) as engine:
        return served_each(engine, {"overview": "/overview"}, repeats)["overview"]


def in_browser(house: House, key: str, paths: dict[str, str], options: argparse.Namespace) -> tuple[list[float], list[str]]:
    """Milliseconds of each try from the overview's address to the drawn jobs; what axe finds and what does not fit, on any page."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=next(filter(None, map(shutil.which, CHROMIUM))), args=list(FLAGS))
        context = browser.new_context(base_url=house.url, viewport={"width": DESK, "height": 900})
        context.add_cookies([{"name": "sessionid", "value": key, "url": house.url}])
        drawn = [_drawn(context) for _ in range(WARM_UP + options.repeats)][WARM_UP:]
        page = context.new_page()
        wrong = [f"{name}: {fault}" for name, path in paths.items() if "live" not in name for fault in _wrong(page, name, path, options)]
        browser.close()
    return drawn, wrong


def _drawn(context: BrowserContext) -> float:
    page = context.new_page()
    milliseconds = took(lambda: _open(page, "/console/"))
    page.close()
    return milliseconds


def _open(page: Page, path: str) -> None:
    page.goto(path)
    if path == "/console/":
        page.wait_for_function(_DRAWN)


def _wrong(page: Page, name: str, path: str, options: argparse.Namespace) -> list[str]:
    _open(page, path)
    found = faults(page, DESK, PHONE)
    if options.shots:
        _shoot(page, name, options.shots)
    return found


def _shoot(page: Page, name: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for width, theme in ((width, theme) for width in (DESK, PHONE) for theme in ("light", "dark")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.screenshot(path=folder / f"{name.replace(':', '').replace(',', '').replace(' ', '-')}-{width}-{theme}.png", full_page=True)


def summary(
    served: dict[str, list[float]],
    drawn: list[float],
    engine: list[float],
    wrong: list[str],
    seen: dict[str, Any],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Median and worst of each in milliseconds; ``holds``: every page's median is within its limit, and ``wrong`` is empty."""
    figures = figures_of(served)
    late = [name for name, found in figures.items() if found["median"] >= PAGE_MS]
    return {
        "engine": "fakes" if options.fakes else "real, tiny-math",
        **{name: getattr(options, name) for name in ("jobs", "tenants", "acts")},
        "open_jobs": len(seen["engine"]["open"]),
        "steps_in_window": seen["steps"],
        "limit": PAGE_MS,
        "milliseconds": figures,
        **figures_of({"overview_drawn": drawn, "engine_alone": engine}),
        "late": late,
        "found": wrong,
        "holds": not late and not wrong,
    }


if __name__ == "__main__":
    sys.exit(main())
