"""Asking the engine's simulator: how it would be with more jobs, or under another policy."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from portal import gateway
from portal.json_keys import read_json

WORKLOADS = (
    ("search", "Search agents: up to five tool calls, 32 prompts × 8"),
    ("gsm8k", "Grade-school maths: up to 2,048 tokens, 64 prompts × 8"),
    ("amc12", "Competition maths: up to 4,096 tokens, 32 prompts × 8"),
    ("like", "Like an open job"),
)
_ROWS = (
    ("ttfs_seconds", "Time to the first step", "seconds", False),
    ("tpts_seconds", "Time per step", "seconds", False),
    ("steps_per_hour", "Steps per hour, all jobs", "", True),
    ("wait_rollout_seconds", "A step waits for its rollout", "seconds", False),
    ("wait_train_seconds", "A batch waits for the trainer", "seconds", False),
    ("rollout_busy", "Rollout device busy", "share", True),
    ("train_busy", "Trainer busy", "share", True),
)


class QuestionForm(forms.Form):
    engine = forms.ChoiceField(label="On which engine")
    jobs = forms.IntegerField(min_value=0, max_value=64, initial=10, label="How many more jobs")
    workload = forms.ChoiceField(choices=WORKLOADS, label="Of what kind")
    like = forms.CharField(
        max_length=64, required=False, label="Which open job", help_text="Its id, where they are to be like one of today's."
    )
    steps = forms.IntegerField(
        min_value=1, max_value=20, initial=5, label="Steps to play", help_text="Of each job; more are more exact and take longer."
    )
    policy = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 3, "spellcheck": "false"}),
        label="With the policy changed",
        help_text='JSON, as in {"max_active": 16}. Empty: as it is now.',
    )

    def __init__(self, *given: Any, **more: Any):
        super().__init__(*given, **more)
        self.fields["engine"].choices = [(name, gateway.title(name)) for name in gateway.names()]
        self.fields["engine"].required = False  # "" is the first one's name
        if len(gateway.names()) == 1:
            del self.fields["engine"]

    def clean_policy(self) -> dict[str, Any]:
        text = self.cleaned_data["policy"].strip()
        try:
            changes = read_json(text) if text else {}
        except ValueError as error:
            raise ValidationError(str(error)) from None
        if not isinstance(changes, dict):
            raise ValidationError("must be an object")
        return changes


def ask(form: QuestionForm) -> dict[str, Any] | None:
    """The answer with its rows laid out for the page; None where it was refused, and then ``form`` says why."""
    try:
        question = dict(form.cleaned_data)
        told = gateway.engine(question.pop("engine", "")).whatif(question)
    except gateway.EngineRefused as refused:
        for field, message in refused.problems or [("", str(refused))]:
            form.add_error(field if field in form.fields else None, message)
        return None
    except gateway.EngineDown as down:
        form.add_error(None, str(down))
        return None
    return {**told, "rows": [row for row in map(lambda of: _row(told, *of), _ROWS) if row]}


def _row(told: dict[str, Any], key: str, label: str, unit: str, more_is_better: bool) -> dict[str, Any] | None:
    now, then = (told[side][key] if told[side] else None for side in ("now", "then"))
    if then is None:
        return None
    change = None if not now else then / now - 1
    better = None if change is None or abs(change) < 0.02 or unit == "share" else (change > 0) == more_is_better
    return {"label": label, "unit": unit, "now": now, "then": then, "change": change, "better": better}
