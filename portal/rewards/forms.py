"""The reward form: one set of fields per grader of the engine's schema, shown for the chosen type."""

from __future__ import annotations

from typing import Any

from django import forms

from portal.names import MAX_NAME

# (type, title, what it does in plain words)
GRADERS = (
    ("numeric", "Number", "Right when the last number in the answer equals the reference, within a tolerance. For sums and word problems."),
    ("string_check", "Exact text", "Right when the answer equals, or contains, the reference. For labels and short answers."),
    ("math", "Mathematics", "Right when the answer is mathematically equal to the reference: 1/2, 0.5 and \\frac{1}{2} are the same."),
)
OPERATIONS = (
    ("eq", "equals the reference"),
    ("ne", "differs from the reference"),
    ("like", "contains the reference"),
    ("ilike", "contains the reference, upper and lower case alike"),
)
_OF_TYPE = {
    "numeric": ("absolute_tolerance", "relative_tolerance"),
    "string_check": ("operation", "strip"),
    "math": (),
}


class RewardForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME)
    type = forms.ChoiceField(choices=[(key, title) for key, title, _ in GRADERS], initial="numeric", widget=forms.RadioSelect)
    input = forms.CharField(
        label="What is graded", initial="{{sample.output_text}}", help_text="{{sample.output_text}} is the model's completion."
    )
    reference = forms.CharField(
        label="The right answer", initial="{{item.answer}}", help_text="{{item.column}} is a column of the dataset's row."
    )
    operation = forms.ChoiceField(label="The answer is right when it", choices=OPERATIONS, required=False, initial="eq")
    strip = forms.BooleanField(label="Ignore white space around both", required=False, initial=True)
    absolute_tolerance = forms.FloatField(
        required=False, initial="0.000001", help_text="The largest difference that still counts as right."
    )
    relative_tolerance = forms.FloatField(required=False, initial=0, help_text="As a share of the reference: 0.01 allows 1 %.")

    def grader(self) -> dict[str, Any]:
        """What was typed, in the engine's shape; empty fields are left to the schema's defaults."""
        kind = self.cleaned_data["type"]
        names = ("type", "input", "reference", *_OF_TYPE[kind])
        return {name: self.cleaned_data[name] for name in names if self.cleaned_data[name] not in (None, "")}

    def refuse(self, problems: list[tuple[str, str]]) -> None:
        for path, message in problems:
            field = path.removeprefix("grader.")
            self.add_error(field if field in self.fields else None, message)
