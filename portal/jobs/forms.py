"""The job form. It only reads what was typed; whether that makes a job is decided by the door, whose problems come back to their fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.forms.boundfield import BoundField

from engine.spec import ModelInfo
from portal.jobs.knobs import SECTIONS, Knob, knobs
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
            self.fields[knob.path] = _field(knob)

    def basic(self) -> list[BoundField]:
        return [self[knob.path] for knob in self.knobs if knob.basic]

    def advanced(self) -> list[BoundField]:
        return [self[knob.path] for knob in self.knobs if not knob.basic]

    def advanced_has_errors(self) -> bool:
        return any(bound.errors for bound in self.advanced())

    def raw(self) -> dict[str, Any]:
        """What was typed as the nested request that ``create_job`` takes; an empty field is left out, so that the spec's default holds."""
        nested: dict[str, Any] = {section: {} for section in SECTIONS}
        for path, value in self.cleaned_data.items():
            if value in (None, "", []):
                continue
            section, _, name = path.rpartition(".")
            (nested[section] if section else nested)[name] = value
        return nested

    def refuse(self, problems: Sequence[tuple[str, str]]) -> None:
        """Put each of the door's problems beside the field that it is about."""
        for path, message in problems:
            self.add_error(self._home_of(path, message), message.replace("Input should be", "Must be", 1))

    def _home_of(self, path: str, message: str) -> str | None:
        if path.startswith("grader"):
            return "reward"
        known = [name for name in self.fields if path == name or path.startswith(f"{name}.")]
        # A rule about several fields names the one to change at its beginning.
        known = known or [name for name in self.fields if message.startswith(f"{name} ")]
        return max(known, key=len, default=None)


def initial(spec: dict[str, Any]) -> dict[str, Any]:
    """A form's starting values from an existing job's spec."""
    values = {"base_model": spec["base_model"]}
    for knob in knobs():
        section, _, name = knob.path.rpartition(".")
        values[knob.path] = (spec.get(section, {}) if section else spec).get(name, knob.default)
    return values


def _field(knob: Knob) -> forms.Field:
    common: dict[str, Any] = {"label": knob.label, "help_text": knob.help, "initial": knob.default, "required": False}
    if knob.kind == "choices":
        return forms.MultipleChoiceField(choices=[(c, c) for c in knob.choices], widget=forms.CheckboxSelectMultiple, **common)
    if knob.kind == "boolean":
        return forms.BooleanField(**common)
    if knob.kind == "string" and not knob.choices:
        return forms.CharField(**common)
    if knob.choices:
        return forms.ChoiceField(choices=[(c, c) for c in knob.choices], **common)
    # Limits are told to the browser and checked by the door: the form has no second opinion.
    limits = {"min": knob.minimum, "max": knob.maximum, "step": 1 if knob.kind == "integer" else "any", "inputmode": "decimal"}
    kind = forms.IntegerField if knob.kind == "integer" else forms.FloatField
    return kind(widget=forms.NumberInput(attrs={key: value for key, value in limits.items() if value is not None}), **common)
