"""Every number on the run page, computed once more from the REST events: what is shown is what was reported."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from statistics import fmean
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from portal.jobs.figures import PHASES, figures
from tests.browser.conftest import PATIENCE_MS
from tests.browser.people import Person

pytestmark = [pytest.mark.browser, pytest.mark.stack]
STEPS = 7


@pytest.fixture(scope="module")
def job(alice: Person) -> str:
    return alice.job(steps=STEPS, name="Numbers")


@pytest.fixture
def page(visit: Callable[..., Page], job: str) -> Page:
    found = visit(f"/jobs/{job}/")
    expect(found.locator("#run-state")).to_have_text("succeeded", timeout=PATIENCE_MS)
    return found


@pytest.fixture
def events(page: Page, alice: Person, job: str) -> list[dict[str, Any]]:
    return alice.events(job)


def data_of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["data"] for event in events if event["kind"] == kind]


def moments(events: list[dict[str, Any]], kind: str) -> list[datetime]:
    return [datetime.fromisoformat(event["at"]) for event in events if event["kind"] == kind]


def duration(seconds: float) -> str:
    """Of less than a minute, as the page writes it."""
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"


def test_the_script_and_the_server_name_the_same_figures(page: Page, events: list[dict[str, Any]]) -> None:
    script = "async (steps) => { const { figures } = await import('/static/js/figures.js'); return steps.map(figures); }"
    steps = data_of(events, "step")
    assert page.evaluate(script, steps) == [pytest.approx(figures(step)) for step in steps]


def test_the_figures_at_the_top(page: Page, events: list[dict[str, Any]]) -> None:
    steps, evals, [ended] = data_of(events, "step"), data_of(events, "eval"), data_of(events, "ended")
    rewards = [step["rollout"]["reward_mean"] for step in steps]
    tokens = {kind: sum(step["tokens"][kind] for step in steps) for kind in ("prefill", "sampled", "trained")}
    evaluated = sum(one["sampled_tokens"] for one in evals)
    gain, better = fmean(rewards[-3:]) - fmean(rewards[:3]), evals[-1]["reward_mean"] - evals[0]["reward_mean"]
    signed = lambda x: f"{'−' if x < 0 else '+'}{abs(x):.2f}"  # noqa: E731
    shown = {
        "#run-step": str(len(steps)),
        "#run-reward": f"{fmean(rewards[-3:]):.2f}",
        "#run-gain": f"{signed(gain)} since the first 3 steps",
        "#run-eval": f"{evals[-1]['reward_mean']:.2f}",
        "#run-eval-gain": f"{signed(better)} since version 0",
        "#run-eta": duration(ended["completion_seconds"]),
        "#run-tpts": f"{duration(ended['tpts_seconds'])} a step",
        "#run-ttfs": duration(ended["ttfs_seconds"]),
        "#run-tokens": f"{tokens['sampled'] + evaluated:,}",
        "#run-tokens-more": f"{evaluated:,} of them in evaluations · {tokens['prefill']:,} prefill · {tokens['trained']:,} trained",
        "#certificate-text": "{on_policy} of {completions} completions sampled from version {version}".format(**steps[-1]["certificate"]),
        "#steps-count": str(len(steps)),
        "#events-count": str(len(events)),
    }
    assert {selector: page.inner_text(selector) for selector in shown} == shown


def test_the_table_of_steps(page: Page, events: list[dict[str, Any]]) -> None:
    rows = page.eval_on_selector_all("#steps tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))")
    for row, step in zip(rows, reversed(data_of(events, "step")), strict=True):
        rollout = step["rollout"]
        assert row[0] == str(step["version"])
        assert row[1:4] == [f"{rollout['reward_mean']:.3f}", f"{rollout['reward_std']:.3f}", f"{rollout['length_mean']:.1f}"]
        assert row[5:7] == [f"{rollout['groups_all_right']} / {rollout['groups_all_wrong']}", str(rollout["invalid"])]
        assert row[7] == f"{step['entropy']:.3f}"
        assert row[9:12] == [f"{step['grad_norm']:.3f}", duration(sum(step["seconds"].values())), f"{step['tokens']['sampled']:,}"]


CHARTS = {
    "reward": lambda f: [f"mean {f['reward']:.3f}", f"standard deviation {f['reward_std']:.3f}"],
    "length": lambda f: [f"mean {f['length']:.1f}", f"longest {f['length_max']:.1f}"],
    "entropy": lambda f: [f"{f['entropy']:.3f}"],
    "gradient": lambda f: [f"{f['grad_norm']:.3f}"],
    "rate": lambda f: [f"{f['learning_rate']:.4f}"],
    "latency": lambda f: [f"total {duration(sum(f[f'seconds_{phase}'] for phase in PHASES))}"],
}


@pytest.mark.parametrize("name", CHARTS)
def test_each_point_of_a_chart_as_its_keyboard_cursor_reads_it(page: Page, events: list[dict[str, Any]], name: str) -> None:
    stage = page.locator(f"[data-chart={name}] .chart-stage")
    stage.scroll_into_view_if_needed()
    page.wait_for_function("name => document.querySelector(`[data-chart=${name}]`).dataset.drawn", arg=name)
    stage.focus()
    page.keyboard.press("End")
    for step in reversed(data_of(events, "step")):
        told = stage.get_attribute("aria-valuetext").split(" · ")
        assert told[0] == f"step {step['version']}"
        assert set(CHARTS[name](figures(step))) <= set(told), told
        page.keyboard.press("ArrowLeft")
