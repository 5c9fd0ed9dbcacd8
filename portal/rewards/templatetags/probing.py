"""Words and numbers of the probe's page."""

from __future__ import annotations

from typing import Any

from django import template

register = template.Library()


@register.filter
def percent(share: float | str | None) -> str:
    """Whole above one hundredth, else with a digit more. What is not there is None, or empty where a template reached into it."""
    if share is None or share == "":
        return "–"
    return f"{share * 100:.1f} %" if 0 < share < 0.01 else f"{share * 100:.0f} %"


@register.filter
def figure(value: float | str | None) -> str:
    """Three digits that count."""
    return "–" if value is None or value == "" else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


@register.filter
def method_words(method: str) -> str:
    return {"u_statistic": "counted", "beta_binomial": "estimated"}.get(method, method)


@register.simple_tag
def advice(result: dict[str, Any]) -> list[tuple[str, str]]:
    """(tone, sentence) of what a person should know before the job is started, most important first."""
    signal, lengths, invalid = result["zero_signal"], result["lengths"], result["invalid"]
    found = []
    if invalid["share"] > 0.2:
        text = f"{percent(invalid['share'])} of the completions could not be graded; above 20 % a job pauses. {_first(invalid['first'])}"
        found.append(("bad", text.strip()))
    elif invalid["count"]:
        found.append(("warn", f"{invalid['count']} completions could not be graded. {_first(invalid['first'])}".strip()))
    if signal["share"] >= 0.95:
        found.append(("bad", f"Hardly any group would teach the model anything: {_why_silent(signal)}"))
    elif signal["share"] >= 0.5:
        found.append(("warn", f"More than half of the groups would carry no signal: {_why_silent(signal)}"))
    if lengths["truncated"]["mean"] >= 0.2:
        share = percent(lengths["truncated"]["mean"])
        found.append(("warn", f"{share} of the completions were cut at their longest. Allow longer ones, or ask for shorter answers."))
    return found or [("good", "The base model is right often enough to learn from, and wrong often enough to have something to learn.")]


def _first(reasons: list[str]) -> str:
    return f"The first: {reasons[0][:300]}" if reasons else ""


def _why_silent(signal: dict[str, Any]) -> str:
    right, wrong = signal["all_right"], signal["all_wrong"]
    if wrong >= 2 * right:
        return "the base model gets nearly all of them wrong. Easier rows, larger groups or a reward with finer steps would help."
    if right >= 2 * wrong:
        return "the base model gets nearly all of them right. Harder rows would teach it more."
    return "each row is always right or always wrong. Rows of middling difficulty, or larger groups, would teach it more."
