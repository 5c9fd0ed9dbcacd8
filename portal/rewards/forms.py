"""The reward form: one set of fields per kind of the engine's graders, shown for the chosen one."""

from __future__ import annotations

import json
import re
from typing import Any

from django import forms

from engine.grader_spec import METRICS, UNIT
from portal.names import MAX_NAME
from portal.rewards.actions import checked_grader
from portal.rewards.kinds import BY_TYPE, KINDS
from tenants.models import Tenant

PARTS = 4
OPERATIONS = (
    ("eq", "equals the reference"),
    ("ne", "differs from the reference"),
    ("like", "contains the reference"),
    ("ilike", "contains the reference, upper and lower case alike"),
)
_METRIC_WORDS = {
    "fuzzy_match": "fuzzy_match: characters in common",
    "bleu": "bleu: runs of words, exact; for translations",
    "gleu": "gleu: runs of words, forgiving on short texts",
    "meteor": "meteor: words and their stems, in order",
    "rouge_l": "rouge_l: longest common sequence of words; for summaries",
    **{f"rouge_{n}": f"rouge_{n}: {'words' if n == 1 else f'runs of {n} words'} in common" for n in range(1, 6)},
}
_SOURCE = '''def grade(sample, item):
    """A number, or None where this row is none of its business."""
    return 1.0 if sample["output_text"].strip() == str(item["answer"]) else 0.0
'''
_SCHEMA = '{\n  "type": "object",\n  "properties": {"answer": {"type": "string"}},\n  "required": ["answer"]\n}'
_PROMPT = "Question: {{item.prompt}}\nRight answer: {{item.answer}}\n\nThe answer to grade:\n{{sample.output_text}}"
_COMPLETION = "{{sample.output_text}} is the model's completion; {{sample.output_json.key}} reaches into one that is JSON."


def _code(initial: str, rows: int, editor: str = "") -> dict[str, Any]:
    attrs = {"rows": rows, "class": "mono", "spellcheck": "false", "wrap": "off", **({"data-editor": editor} if editor else {})}
    return {"initial": initial, "widget": forms.Textarea(attrs=attrs)}


class RewardForm(forms.Form):
    """Every field of every kind; those of other kinds than the chosen one are not looked at."""

    name = forms.CharField(max_length=MAX_NAME)
    type = forms.ChoiceField(choices=[(kind.type, kind.title) for kind in KINDS], initial="numeric", widget=forms.RadioSelect)
    input = forms.CharField(label="What is graded", initial="{{sample.output_text}}", help_text=_COMPLETION)
    reference = forms.CharField(
        label="The right answer", initial="{{item.answer}}", help_text="{{item.column}} is a column of the dataset's row."
    )
    operation = forms.ChoiceField(required=False, label="The answer is right when it", choices=OPERATIONS, initial="eq")
    strip = forms.BooleanField(label="Ignore white space around both", required=False, initial=True)
    absolute_tolerance = forms.FloatField(
        required=False, initial="0.000001", help_text="The largest difference that still counts as right."
    )
    relative_tolerance = forms.FloatField(required=False, initial=0, help_text="As a share of the reference: 0.01 allows 1 %.")
    evaluation_metric = forms.ChoiceField(
        required=False,
        label="How likeness is measured",
        choices=[(metric, _METRIC_WORDS[metric]) for metric in METRICS],
        initial="fuzzy_match",
    )
    json_schema = forms.CharField(
        label="The schema",
        help_text="JSON Schema, draft 2020-12 unless it names another. References stay inside: #/$defs/name.",
        **_code(_SCHEMA, 10),
    )
    source = forms.CharField(
        label="Your function",
        strip=False,
        help_text="sample has output_text, output_json and tool_calls; item has the row's columns. 5 seconds a call, 1 GiB, no network, no "
        "files. numpy, sympy and math_verify can be imported.",
        **_code(_SOURCE, 14, editor="python"),
    )
    code_input = forms.CharField(
        label="Where the code is",
        initial="{{sample.output_text}}",
        help_text="The last fenced block in it is run, or all of it where there is none.",
    )
    tests = forms.CharField(
        label="The tests",
        initial="{{item.tests}}",
        help_text="Python with asserts, or a JSON list of such, of {stdin, stdout} or of {function, args, expected}.",
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}),
    )
    partial = forms.BooleanField(label="Pay for the share of tests that pass", required=False, initial=False)
    seconds = forms.FloatField(required=False, label="Seconds allowed", initial=5, help_text="For each test or request.")
    url = forms.CharField(label="Address", help_text="https only, and reachable from the Internet.")
    signing_secret = forms.CharField(
        label="Signing secret",
        help_text="Signs each request (HMAC-SHA256), so that your endpoint knows who asks. Copy it now: it is not shown again.",
        widget=forms.TextInput(attrs={"class": "mono", "autocomplete": "off", "spellcheck": "false"}),
    )
    range_low = forms.FloatField(required=False, label="Lowest reward", initial=0, help_text="A reward below it is an error, not a reward.")
    range_high = forms.FloatField(
        required=False, label="Highest reward", initial=1, help_text="A reward above it is an error, not a reward."
    )
    model = forms.CharField(
        label="Judge", help_text="base, the base model itself, or the name of a judge that this site's operator offers."
    )
    prompt = forms.CharField(
        label="What the judge reads",
        initial=_PROMPT,
        help_text="The completion is marked as data for the judge: what it says about its own grade is no verdict.",
        widget=forms.Textarea(attrs={"rows": 7}),
    )
    labels = forms.CharField(label="Labels", initial="right\nwrong", help_text="One a line.", widget=forms.Textarea(attrs={"rows": 3}))
    passing_labels = forms.CharField(
        label="Labels that pass",
        initial="right",
        help_text="One a line. They are worth 1, the others 0.",
        widget=forms.Textarea(attrs={"rows": 2}),
    )
    calculate_output = forms.CharField(
        label="Formula",
        help_text="Over the names above: 0.8 * right + 0.2 * style. There are + - * / ^, min, max, abs, floor, ceil, sqrt, exp and log.",
        widget=forms.TextInput(attrs={"class": "mono", "spellcheck": "false"}),
    )

    def __init__(self, tenant: Tenant, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._parts = {reward.public_id: reward for reward in tenant.rewards.all() if reward.kind != "multi"}
        choices = [("", "none"), *((key, f"{reward.name} · {BY_TYPE[reward.kind].title}") for key, reward in self._parts.items())]
        for number in range(1, PARTS + 1):
            self.fields[f"part_{number}"] = forms.ChoiceField(label=f"Reward {number}", choices=choices, required=False)
            self.fields[f"part_name_{number}"] = forms.CharField(label=f"Name {number}", required=False, max_length=64)

    @property
    def boxes(self) -> list[dict[str, Any]]:
        """Each field with the kinds that have it, as the page lays them out."""
        fields = dict.fromkeys(field for kind in KINDS for field in kind.fields if field != "parts")
        # What several kinds share and rarely change comes last.
        fields = sorted(fields, key=lambda name: name in ("range_low", "range_high", "seconds"))
        return [
            {
                "field": self[name],
                "kinds": " ".join(kind.type for kind in KINDS if name in kind.fields),
                "is_check": isinstance(self.fields[name], forms.BooleanField),
                "is_wide": isinstance(self.fields[name].widget, forms.Textarea),
            }
            for name in fields
        ]

    @property
    def parts(self) -> list[tuple[Any, Any]]:
        return [(self[f"part_{number}"], self[f"part_name_{number}"]) for number in range(1, PARTS + 1)]

    @property
    def has_parts(self) -> bool:
        return bool(self._parts)

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        kind = BY_TYPE.get(values.get("type", ""))
        # What was typed for another kind is no fault of this one.
        for name in [name for name in self._errors if kind and name not in ("name", "type", *_typed_fields(kind.fields))]:
            del self._errors[name]
        if kind and kind.type == "json_schema" and "json_schema" in values:
            self._read_schema(values)
        if kind and "parts" in kind.fields:
            self._check_names()
        return values

    def trial_grader(self) -> dict[str, Any] | None:
        """What was typed, in the engine's shape and checked; None when something is wrong, which is then said beside its field.

        A trial needs no name.
        """
        self.errors.pop("name", None)
        if self.errors:
            return None
        grader, problems = self.grader(), []
        checked_grader(grader, problems)
        self.refuse(problems)
        return None if problems else grader

    def _check_names(self) -> None:
        taken: set[str] = set()
        for number in self._chosen():
            name = self._part_name(number)
            if name in taken:
                self.add_error(f"part_name_{number}", f"Another reward above is called {name}, too; give this one a name of its own.")
            taken.add(name)

    def _read_schema(self, values: dict[str, Any]) -> None:
        try:
            values["json_schema"] = json.loads(values["json_schema"])
        except json.JSONDecodeError as error:
            self.add_error("json_schema", f"Line {error.lineno}, column {error.colno}: {error.msg}.")
        except (ValueError, RecursionError):
            self.add_error("json_schema", "This JSON is nested too deeply, or holds a number that is too long.")

    def grader(self) -> dict[str, Any]:
        """What was typed, in the engine's shape; empty fields are left to the schema's defaults."""
        kind = BY_TYPE[self.cleaned_data["type"]]
        values = {name: _unix(self.cleaned_data[name]) for name in kind.fields if self.cleaned_data.get(name) not in (None, "")}
        low, high = values.pop("range_low", None), values.pop("range_high", None)
        if low is not None or high is not None:
            values["range"] = [UNIT[0] if low is None else low, UNIT[1] if high is None else high]
        if "code_input" in values:
            values["input"] = values.pop("code_input")
        if "prompt" in values:
            values["input"] = [{"role": "user", "content": values.pop("prompt")}]
        for name in ("labels", "passing_labels"):
            if name in values:
                values[name] = [line.strip() for line in values[name].splitlines() if line.strip()]
        if "parts" in kind.fields:
            values["graders"] = self._graders()
        return {"type": kind.type, **values}

    def _graders(self) -> dict[str, Any]:
        return {self._part_name(number): self._parts[self.cleaned_data[f"part_{number}"]].grader for number in self._chosen()}

    def _chosen(self) -> list[int]:
        return [number for number in range(1, PARTS + 1) if self.cleaned_data.get(f"part_{number}")]

    def _part_name(self, number: int) -> str:
        """As typed, or made of the reward's own name: "Right answer" becomes ``right_answer``."""
        typed = self.cleaned_data.get(f"part_name_{number}")
        own = re.sub(r"\W+", "_", self._parts[self.cleaned_data[f"part_{number}"]].name.lower(), flags=re.ASCII).strip("_")
        return typed or (own if own[:1].isalpha() else f"reward_{number}")

    def refuse(self, problems: list[tuple[str, str]]) -> None:
        """Put each problem beside the field that it is about."""
        for path, message in problems:
            field = self._field_of(path.removeprefix("grader."))
            self.add_error(field if field in self.fields else None, message)
            if field == "source" and (line := re.match(r"line (\d+):", message)):
                self.fields["source"].widget.attrs["data-error-line"] = line[1]

    def _field_of(self, path: str) -> str:
        first, _, rest = path.partition(".")
        kind = BY_TYPE[self.cleaned_data["type"]]
        if first == "graders":
            names = {self._part_name(number): number for number in self._chosen()}
            number = names.get(rest.partition(".")[0])
            return f"part_{number}" if number else "part_1" if not names else "calculate_output"
        if first == "range":
            return "range_low"
        if first == "input" and "prompt" in kind.fields:
            return "prompt"
        return "code_input" if first == "input" and "code_input" in kind.fields else first


def _unix(value: Any) -> Any:
    """Browsers send line ends of their own; a source's lines should count as they were typed."""
    return value.replace("\r\n", "\n") if isinstance(value, str) else value


def _typed_fields(fields: tuple[str, ...]) -> list[str]:
    parts = [f"{stem}_{number}" for number in range(1, PARTS + 1) for stem in ("part", "part_name")]
    return [name for field in fields for name in (parts if field == "parts" else [field])]
