"""The environment on the job form: a single turn, or a tool loop with its limits. What else there is stays with the API.

Fields and their limits are read off the spec's schema; only where to search is said otherwise here: by a word, a dataset or an endpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django import forms

from engine.spec import JobSpec, ModelInfo
from portal.jobs.corpus import COLUMNS
from portal.jobs.fields import field_of
from portal.jobs.knobs import Knob, read_field
from tenants.models import Tenant

SECTION = "environment."
TYPE, SOURCE = "environment.type", "environment.search.source"
NOT_OFFERED = "environment_not_offered"
TYPES = (
    ("single_turn", "Single turn", "One prompt, one completion."),
    ("tools", "Tools", "The model may search, calculate or run programs before it answers."),
)
TOOL_NAMES = {"search": "search", "python": "python, in the sandbox", "calculator": "calculator"}
_WORDS = {
    "environment.tools": ("May call", "The model is told how in the system message."),
    "environment.search.results": ("Results per search", "Articles that one search shows at most. More cost more context."),
    "environment.max_calls": (
        "Calls per completion",
        "Failed calls count. The first call beyond this is refused with a word to answer now; another one ends the completion.",
    ),
    "environment.max_turns": (
        "Turns per completion",
        "A completion that still calls in its last turn ends there. Empty: one more than calls.",
    ),
    "environment.max_tokens": (
        "Tokens per completion",
        "Of all turns and tool answers together. It bounds the context, and so the memory. Empty: what turns and answers can take.",
    ),
    "environment.max_observation_tokens": ("Tokens per tool answer", "A longer answer is cut. The model is never trained on these tokens."),
    "environment.call_seconds": ("Seconds per call", "A call that takes longer has failed, and the model is told so."),
    "environment.max_seconds": ("Seconds for all calls", "Of one completion together. After that, calls are refused like too many."),
    "environment.instructions": (
        "Instructions",
        "Added to the system message instead of our own words about the tools. Say how to call: <tool>name: argument</tool>.",
    ),
}
_SOURCE_HELP = "The bundled almanac of an invented country, a dataset of yours with the columns title and text, or your operator's wiki."


def tool_knobs() -> list[Knob]:
    """Every field of a tool loop that holds one value."""
    return list(_walk(JobSpec.model_json_schema()["$defs"]))


def _walk(definitions: Mapping[str, Any]) -> Iterator[Knob]:
    fields = definitions["Tools"]["properties"]
    yield from read_field(f"{SECTION}tools", fields["tools"], _WORDS)
    for name, field in definitions["SearchSpec"]["properties"].items():
        yield from read_field(f"{SECTION}search.{name}", field, _WORDS)
    for name, field in fields.items():
        if name != "tools":
            yield from read_field(f"{SECTION}{name}", field, _WORDS)


def fields(tenant: Tenant, models: Sequence[ModelInfo]) -> dict[str, forms.Field]:
    """The form's fields by name. Where to search stands behind the tools."""
    kind = forms.ChoiceField(choices=[(value, title) for value, title, _ in TYPES], initial=TYPES[0][0], required=False)
    found: dict[str, forms.Field] = {TYPE: kind}
    for knob in tool_knobs():
        found[knob.path] = field_of(knob)
        if knob.path == f"{SECTION}tools":
            found[knob.path].choices = [(name, TOOL_NAMES.get(name, name)) for name in knob.choices]
            found[SOURCE] = forms.ChoiceField(label="Search in", help_text=_SOURCE_HELP, choices=_sources(tenant, models), required=False)
    found[f"{SECTION}instructions"].widget = forms.Textarea(attrs={"rows": 3, "maxlength": 20_000})
    return found


def _sources(tenant: Tenant, models: Sequence[ModelInfo]) -> list[tuple[str, str]]:
    corpora = [dataset for dataset in tenant.datasets.all() if set(COLUMNS) <= set(dataset.columns)]
    endpoints = sorted({name for model in models for name in model.search_endpoints})
    return [
        ("bundled", "Bundled almanac"),
        *((f"corpus:{dataset.public_id}", f"{dataset.name} · {dataset.rows:,} articles") for dataset in corpora),
        *((f"endpoint:{name}", f"{name} · wiki") for name in endpoints),
    ]


def raw(cleaned: Mapping[str, Any]) -> dict[str, Any]:
    """``{"environment": …}`` as the API takes it; nothing where the form says nothing. Empty fields are left to the spec's defaults."""
    if not (kind := cleaned.get(TYPE)):
        return {}
    if kind != "tools":
        return {"environment": {"type": kind}}
    environment: dict[str, Any] = {"type": kind, "search": {"source": _source(cleaned.get(SOURCE) or "bundled")}}
    for path, value in cleaned.items():
        if not path.startswith(SECTION) or path in (TYPE, SOURCE) or value in (None, ""):
            continue
        section, _, name = path.removeprefix(SECTION).rpartition(".")
        (environment[section] if section else environment)[name] = value
    return {"environment": environment}


def _source(chosen: str) -> dict[str, str]:
    kind, _, name = chosen.partition(":")
    return {"type": kind, **({"dataset": name} if kind == "corpus" else {"name": name} if kind == "endpoint" else {})}


def initial(environment: Mapping[str, Any], tenant: Tenant) -> dict[str, Any]:
    """The form's values for the environment of an existing job of ``tenant``'s. One that the form does not offer becomes a single turn,
    and ``NOT_OFFERED`` says so."""
    kind = environment.get("type", TYPES[0][0])
    if kind != "tools":
        return {TYPE: TYPES[0][0], NOT_OFFERED: kind != TYPES[0][0]}
    values: dict[str, Any] = {TYPE: "tools"}
    for knob in tool_knobs():
        section, _, name = knob.path.removeprefix(SECTION).rpartition(".")
        values[knob.path] = (environment.get(section, {}) if section else environment).get(name, knob.default)
    return {**values, SOURCE: _chosen(environment.get("search", {}).get("source", {}), tenant)}


def _chosen(source: Mapping[str, Any], tenant: Tenant) -> str:
    if source.get("type") == "endpoint":
        return f"endpoint:{source['name']}"
    if source.get("type") == "corpus":
        found = tenant.datasets.filter(train_sha256=source["blob"]["sha256"]).first()
        return f"corpus:{found.public_id}" if found else "bundled"
    return "bundled"
