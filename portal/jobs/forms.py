"""The job form. It only reads what was typed; whether that makes a job is decided by the door, whose problems come back to their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.forms.boundfield import BoundField

from engine.spec import ModelInfo
from portal.billing import budget_form
from portal.jobs import environments, warm_start
from portal.jobs.fields import field_of
from portal.jobs.knobs import SECTIONS, knobs
from tenants.models import Tenant


class JobForm(forms.Form):
    """Field names are the spec's dotted paths, so that a problem finds its field without a table."""

    name = forms.CharField(max_length=100, required=False, help_text="Left empty, it is named after its reward and dataset.")
    dataset = forms.ChoiceField()
    reward = forms.ChoiceField(help_text="What grades each completion.")
    base_model = forms.ChoiceField(label="Base model", help_text="Frozen; the job trains an adapter on it.")

    def __init__(self, tenant: Tenant, models: Sequence[ModelInfo], *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.knobs = knobs()
        self.fields["dataset"].choices = [(d.public_id, f"{d.name} · {d.rows:,} rows") for d in tenant.datasets.all()]
        self.fields["reward"].choices = [(r.public_id, f"{r.name} · {r.kind}") for r in tenant.rewards.all()]
        self.fields["base_model"].choices = [(model.name, model.name) for model in models]
        for knob in self.knobs:
            self.fields[knob.path] = field_of(knob)
        self.fields["doctor.pause_on"].choices = [(code, code.replace("_", " ")) for code, _ in self.fields["doctor.pause_on"].choices]
        self.fields |= environments.fields(tenant, models)
        self.fields |= _origin_fields() | budget_form.fields()
        self.fields["warm_start.job"].choices = warm_start.choices(tenant, self["warm_start.job"].value() or "")

    def clean(self) -> dict[str, Any]:
        """A number that was there and is rubbed out is a fault: the default in its place would be a value that nobody saw."""
        values = super().clean()
        for knob in self.knobs:
            emptied = knob.kind in ("integer", "number") and self.data.get(knob.path) is not None and values.get(knob.path, 0) is None
            if emptied and knob.default is not None:
                self.add_error(knob.path, f"Fill this in; {knob.default:g} is usual.")
        return values

    def basic(self) -> list[BoundField]:
        return [self[knob.path] for knob in self.knobs if knob.basic]

    def advanced(self) -> list[BoundField]:
        return [self[knob.path] for knob in self.knobs if not knob.basic]

    def origin(self) -> list[BoundField]:
        return [self["warm_start.job"], self["warm_start.version"]]

    def budget(self) -> list[BoundField]:
        return [self[name] for name in budget_form.fields()]

    def tools(self) -> list[BoundField]:
        """The fields of a tool loop, in reading order."""
        return [self[name] for name in self.fields if name.startswith(environments.SECTION) and name != environments.TYPE]

    def advanced_has_errors(self) -> bool:
        return any(bound.errors for bound in self.advanced())

    def raw(self) -> dict[str, Any]:
        """What was typed as the nested request that ``create_job`` takes; an empty field is left out, so that the spec's default holds."""
        nested: dict[str, Any] = {section: {} for section in SECTIONS}
        for path, value in self.cleaned_data.items():
            if value in (None, "", []) or path.startswith((environments.SECTION, warm_start.SECTION, budget_form.SECTION)):
                continue
            section, _, name = path.rpartition(".")
            (nested[section] if section else nested)[name] = value
        return {**nested, **environments.raw(self.cleaned_data), **_origin(self.cleaned_data), **budget_form.raw(self.cleaned_data)}

    def refuse(self, problems: Sequence[tuple[str, str]]) -> None:
        """Put each of the door's problems beside the field that it is about. A field that could not be read has its own reason: the door
        only misses it."""
        unread = set(self.errors)
        for path, message in problems:
            home = self._home_of(path, message)
            if home not in unread:
                self.add_error(home, message.replace("Input should be", "Must be", 1))

    def _home_of(self, path: str, message: str) -> str | None:
        if path.startswith("grader"):
            return "reward"
        known = [name for name in self.fields if path == name or path.startswith(f"{name}.")]
        # A rule about several fields names the one to change at its beginning.
        known = known or [name for name in self.fields if message.startswith(f"{name} ")]
        return max(known, key=len, default=None)


def initial(spec: dict[str, Any], tenant: Tenant) -> dict[str, Any]:
    """A form's starting values from the spec of a job of ``tenant``'s."""
    values = {"base_model": spec["base_model"], **environments.initial(spec.get("environment", {}), tenant)}
    values |= {f"{warm_start.SECTION}.{name}": value for name, value in (spec.get(warm_start.SECTION) or {}).items()}
    for knob in knobs():
        section, _, name = knob.path.rpartition(".")
        values[knob.path] = (spec.get(section, {}) if section else spec).get(name, knob.default)
    return values


def _origin_fields() -> dict[str, forms.Field]:
    job = "A job of yours with the same base model and adapter. Its weights are taken over, its optimizer is not."
    numbers = forms.NumberInput(attrs={"min": 0, "step": 1, "inputmode": "numeric"})
    return {
        "warm_start.job": forms.ChoiceField(label="Begin with", required=False, help_text=job),
        "warm_start.version": forms.IntegerField(label="Its version", required=False, help_text="Left empty, the latest.", widget=numbers),
    }


def _origin(cleaned: dict[str, Any]) -> dict[str, Any]:
    """A version without its job is passed on as well: the door says that the job is missing, where dropping it would begin afresh."""
    typed = {"job": cleaned.get("warm_start.job") or None, "version": cleaned.get("warm_start.version")}
    known = {name: value for name, value in typed.items() if value is not None}
    return {warm_start.SECTION: known} if known else {}
