"""The Lab's form of what a reward is tried on. Its fields' names begin with ``try-``, beside those of the reward's own form."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from django import forms
from django.conf import settings

from portal.errors import Invalid
from portal.rewards.trial import MAX_CASES, MAX_REPEATS, MAX_TEXT, TOPICS, Trial, parse_trial
from tenants.models import Tenant

MAX_DATASETS = 200
WAYS = (
    ("rows", "Rows of a dataset", "What the reward says to real rows, with an answer that you type or that a column holds."),
    ("text", "One answer", "An answer and a row, both typed by hand."),
    ("corpus", "Adversarial corpus", "Answers that fool careless rewards, and right answers in other words."),
)
_TOPIC_WORDS = {"number": "Numbers", "expression": "Formulas", "choice": "Multiple choice", "text": "Short texts"}
_NUMBERS = re.compile(r"(\d{1,9})(?:\s*[-–]\s*(\d{1,9}))?")


def _area(rows: int, **more: str) -> forms.Textarea:
    return forms.Textarea(attrs={"rows": rows, "class": "mono", "spellcheck": "false", **more})


class TrialForm(forms.Form):
    on = forms.ChoiceField(choices=[way[:2] for way in WAYS], initial="rows")
    output_text = forms.CharField(
        label="The model answers", required=False, strip=False, max_length=MAX_TEXT, initial="The answer is 42.", widget=_area(3)
    )
    item = forms.CharField(
        label="The row", required=False, strip=False, max_length=MAX_TEXT, widget=_area(5), help_text="One JSON object: the row's columns."
    )
    dataset = forms.ChoiceField(required=False)
    split = forms.ChoiceField(
        label="Rows from",
        required=False,
        choices=[("train", "training"), ("eval", "held out")],
        help_text="Held-out rows are never trained on.",
    )
    pick = forms.ChoiceField(
        label="Which", required=False, choices=[("first", "the first"), ("random", "at random"), ("numbers", "by number")]
    )
    count = forms.IntegerField(label="How many", required=False, min_value=1, max_value=MAX_CASES, initial=20)
    seed = forms.IntegerField(
        label="Seed", required=False, min_value=0, max_value=2**31 - 1, initial=0, help_text="The same seed takes the same rows."
    )
    numbers = forms.CharField(label="Row numbers", required=False, max_length=4000, help_text="As in 0, 7, 20-29.")
    answer_from = forms.ChoiceField(
        label="The model's answer", required=False, choices=[("column", "stands in a column"), ("typed", "is the same for each row")]
    )
    column = forms.CharField(
        required=False, max_length=100, initial="answer", help_text="The right answers themselves should all be paid: a first test."
    )
    row_text = forms.CharField(label="The answer to each row", required=False, strip=False, max_length=MAX_TEXT, widget=_area(3))
    topics = forms.MultipleChoiceField(
        label="Asked for",
        required=False,
        choices=[(topic, _TOPIC_WORDS[topic]) for topic in TOPICS],
        widget=forms.CheckboxSelectMultiple,
        help_text="None chosen: what this kind of reward is made for.",
    )
    base_model = forms.ChoiceField(
        label="Graded on the engine of", required=False, help_text="A judge called base is this model; its jobs are graded there too."
    )
    repeats = forms.IntegerField(
        label="Times that each is graded", min_value=1, max_value=MAX_REPEATS, initial=2, help_text="What differs between them is shown."
    )

    def __init__(self, tenant: Tenant, models: Sequence[str], *args: Any, **kwargs: Any):
        """``models``: the names of the base models that are served; with one there is nothing to choose."""
        super().__init__(*args, prefix="try", use_required_attribute=False, **kwargs)
        if len(models) > 1:
            self.fields["base_model"].choices = [(name, name) for name in models]
            self.fields["base_model"].initial = settings.DEFAULT_MODEL
        else:
            del self.fields["base_model"]
        found = tenant.datasets.all()[:MAX_DATASETS]
        self.has_datasets = bool(found)
        words = [(d.public_id, f"{d.name}{f', version {d.version}' if d.series else ''} · {d.rows:,} rows") for d in found]
        self.fields["dataset"].choices = words or [("", "no dataset yet")]

    @property
    def ways(self) -> list[tuple[str, str, str, bool]]:
        """(value, title, text, whether chosen)."""
        chosen = self["on"].value()
        return [(*way, way[0] == chosen) for way in WAYS]

    def trial(self) -> Trial | None:
        """What was asked for; None when something is wrong with it, which is then said beside its field."""
        if not self.is_valid():
            return None
        try:
            given = self.cleaned_data
            chosen = {"base_model": given["base_model"]} if given.get("base_model") else {}
            return parse_trial({"on": self._on(given), "repeats": given["repeats"], **chosen})
        except Invalid as refusal:
            self.refuse(refusal.problems)
            return None

    def refuse(self, problems: list[tuple[str, str]]) -> None:
        for path, message in problems:
            field = path.removeprefix("on.").removeprefix("samples.0.").split(".")[0]
            field = {"samples": "item", "output_text": self._text_field()}.get(field, field)
            self.add_error(field if field in self.fields else None, message)

    def _text_field(self) -> str:
        return "row_text" if self.cleaned_data.get("on") == "rows" else "output_text"

    def _on(self, given: dict[str, Any]) -> dict[str, Any]:
        if given["on"] == "text":
            return {"type": "text", "samples": [{"output_text": _unix(given["output_text"]), "item": self._item(given["item"])}]}
        if given["on"] == "corpus":
            return {"type": "corpus", "topics": given["topics"] or None}
        on: dict[str, Any] = {"type": "rows", **{name: given[name] for name in ("dataset", "split", "pick") if given[name]}}
        on |= {name: given[name] for name in ("count", "seed") if given[name] is not None}
        if on.get("pick") == "numbers":
            on["numbers"] = self._numbers(given["numbers"])
        if given["answer_from"] == "typed":
            return on | {"output_text": _unix(given["row_text"])}
        if not given["column"]:
            raise Invalid([("column", "name the column that holds the answer to grade")])
        return on | {"column": given["column"]}

    def _item(self, text: str) -> dict[str, Any]:
        try:
            item = json.loads(text or "{}")
        except json.JSONDecodeError as error:
            raise Invalid([("item", f"line {error.lineno}, column {error.colno}: {error.msg}")]) from None
        except (ValueError, RecursionError):
            raise Invalid([("item", "this JSON is nested too deeply, or holds a number that is too long")]) from None
        if not isinstance(item, dict):
            raise Invalid([("item", 'write one JSON object, as in {"answer": "42"}')])
        return item

    def _numbers(self, text: str) -> list[int]:
        found: list[int] = []
        for part in filter(None, map(str.strip, text.split(","))):
            match = _NUMBERS.fullmatch(part)
            if match is None:
                raise Invalid([("numbers", f"{part[:40]!r} is no row number; write numbers and spans, as in 0, 7, 20-29")])
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first or last - first >= MAX_CASES:
                raise Invalid([("numbers", f"the span {part} has no row, or more than {MAX_CASES}")])
            found += range(first, last + 1)
        return list(dict.fromkeys(found))


def _unix(text: str) -> str:
    """Browsers send line ends of their own; a model's answer has none of them."""
    return text.replace("\r\n", "\n")
