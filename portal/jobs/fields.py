"""A knob of the spec as a form field."""

from __future__ import annotations

from typing import Any

from django import forms

from portal.jobs.knobs import Knob


def field_of(knob: Knob) -> forms.Field:
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
