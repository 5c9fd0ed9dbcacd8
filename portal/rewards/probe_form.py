"""The probe's form: the few knobs of a job that decide what the base model is asked, and how many rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms

from engine.spec import ModelInfo
from portal.errors import Invalid
from portal.jobs.knobs import Knob, knobs
from portal.jobs.presets import PRESETS
from portal.rewards.probe_models import Probe
from portal.rewards.probes import MAX_ROWS, USUAL_ROWS
from tenants.models import Tenant

PATHS = (
    *("rollout.group_size", "rollout.prompts_per_step", "rollout.max_prompt_tokens", "rollout.max_new_tokens", "rollout.temperature"),
    "train.steps",
)


LONGEST_PROMPT = "rollout.max_prompt_tokens"


class ProbeForm(forms.Form):
    """Field names are the spec's dotted paths, so that a problem finds its field without a table."""

    dataset = forms.ChoiceField()
    base_model = forms.ChoiceField(label="Base model")
    rows = forms.IntegerField(
        initial=USUAL_ROWS,
        label="Rows to try",
        help_text="Drawn at random. More rows, narrower intervals.",
        widget=forms.NumberInput(attrs={"min": 1, "max": MAX_ROWS}),
    )

    def __init__(self, tenant: Tenant, models: Sequence[ModelInfo], *args: Any, **kwargs: Any):
        super().__init__(*args, auto_id="probe_%s", **kwargs)  # it stands beside the Lab's own form
        self.fields["dataset"].choices = [(d.public_id, f"{d.name} · {d.rows:,} rows") for d in tenant.datasets.all()]
        self.fields["base_model"].choices = [(model.name, model.name) for model in models]
        for knob in knobs():
            if knob.path in PATHS:
                self.fields[knob.path] = _field(knob)

    @property
    def ready(self) -> bool:
        """Whether there is anything to choose."""
        return bool(self.fields["dataset"].choices and self.fields["base_model"].choices)

    @property
    def numbers(self) -> list[Any]:
        return [self[name] for name in ("rows", *PATHS)]

    def raw(self) -> dict[str, Any]:
        """What was typed, as ``start_probe`` takes it."""
        nested: dict[str, Any] = {}
        for path, value in self.cleaned_data.items():
            if value not in (None, ""):
                section, _, name = path.rpartition(".")
                (nested.setdefault(section, {}) if section else nested)[name] = value
        return nested

    def refuse(self, refusal: Invalid) -> None:
        """Put each problem beside the field that it is about; a rule about several names the one to change at its beginning."""
        for path, message in refusal.problems:
            named = [name for name in self.fields if path == name or message.startswith(f"{name} ")]
            self.add_error(named[0] if named else None, message.replace("Input should be", "Must be", 1))


def starting_values(tenant: Tenant, models: Sequence[ModelInfo]) -> dict[str, Any]:
    """Of the first preset that a model here can run, with room for the prompts of the dataset that stands first."""
    preset = next((preset for preset in PRESETS if preset.obstacle(models) is None), PRESETS[0])
    values = {path: value for path, value in preset.values.items() if path in PATHS}
    dataset = tenant.datasets.first()
    longest = max((measured.get("max") or 0 for measured in dataset.lengths.values()), default=0) if dataset else 0
    return {**values, LONGEST_PROMPT: max(longest, values.get(LONGEST_PROMPT, 0))} if longest else values


def values_of(probe: Probe) -> dict[str, Any]:
    """What the form said when it began ``probe``."""
    spec = probe.spec
    known = {path: spec.get(path.partition(".")[0], {}).get(path.partition(".")[2]) for path in PATHS}
    values = {path: value for path, value in known.items() if value is not None}
    return {"dataset": probe.dataset.public_id, "base_model": spec["base_model"], **values}


def _field(knob: Knob) -> forms.Field:
    # Limits are told to the browser and checked by the door.
    limits = {"min": knob.minimum, "max": knob.maximum, "step": 1 if knob.kind == "integer" else "any", "inputmode": "decimal"}
    kind = forms.IntegerField if knob.kind == "integer" else forms.FloatField
    widget = forms.NumberInput(attrs={key: value for key, value in limits.items() if value is not None})
    return kind(label=knob.label, initial=knob.default, required=False, widget=widget)
