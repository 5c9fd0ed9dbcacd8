"""The forms of datasets: uploading, reading the columns, generating, importing."""

from __future__ import annotations

from typing import Any

from django import forms

from portal.datasets import word_problems
from portal.datasets.mapping import EXTRACTS, MAX_SYSTEM, Mapping
from portal.datasets.origins import HUB_NAME, MAX_GYM_ROWS
from portal.datasets.text import ENCODINGS
from portal.names import MAX_NAME, file_name

SHARES = (
    (0.1, "10 % (usual)"),
    (0.2, "20 %"),
    (0.05, "5 %"),
    (0.0, "None: I do not want to know whether it got better"),
)
ACCEPT = ".jsonl,.ndjson,.json,.csv,.tsv,.parquet"
MAX_SEED = 2**31 - 1


def file_input(**attributes: str) -> forms.FileInput:
    return forms.FileInput(attrs={"accept": ACCEPT, **attributes})


class PlanForm(forms.Form):
    """What is asked of every new dataset. ``options`` is what an upload keeps."""

    name = forms.CharField(max_length=MAX_NAME, required=False, help_text="Left empty, it is named after the file.")
    eval_share = forms.TypedChoiceField(
        label="Held out",
        choices=SHARES,
        coerce=float,
        initial=0.1,
        help_text="Rows that are never trained on. They tell whether the model got better or only learned the training rows.",
    )
    seed = forms.IntegerField(
        label="Seed of the split", min_value=0, max_value=MAX_SEED, required=False, help_text="The same seed holds out the same prompts."
    )
    model = forms.ChoiceField(
        label="Count tokens for", required=False, help_text="Prompt lengths are told in this base model's tokens, and what it cannot read."
    )
    series = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, models: list[str] = [], **kwargs: Any):  # noqa: B006
        super().__init__(*args, **kwargs)
        self.fields["model"].choices = [("", "do not count"), *((name, name) for name in models)]
        self.fields["model"].initial = models[0] if models else ""

    def options(self) -> dict[str, Any]:
        given = self.cleaned_data
        return {name: given.get(name) or "" for name in ("model", "series")} | {
            "eval_share": given["eval_share"],
            "seed": given.get("seed") or 0,
        }


class UploadForm(PlanForm):
    file = forms.FileField(widget=file_input(), allow_empty_file=True)
    eval_file = forms.FileField(
        label="Held-out rows in a file of their own",
        widget=file_input(),
        required=False,
        allow_empty_file=True,
        help_text="Instead of a share of the rows.",
    )
    replaces = forms.CharField(required=False, widget=forms.HiddenInput)

    def named(self) -> str:
        return self.cleaned_data["name"] or stem(self.cleaned_data["file"].name)


class ReadingForm(PlanForm):
    """How the columns of an upload are read. ``columns``: those of its first rows."""

    shape = forms.ChoiceField(
        label="The prompt is",
        required=False,
        choices=[
            ("plain", "in columns named prompt or messages"),
            ("prompt", "a question in one column"),
            ("messages", "a chat in one column"),
        ],
    )
    prompt = forms.ChoiceField(label="Question", required=False)
    context = forms.ChoiceField(label="Put below the question", required=False)
    messages = forms.ChoiceField(label="Chat", required=False)
    answer_turn = forms.BooleanField(label="The chat ends with the right answer: cut it off and keep it as item.answer", required=False)
    answer = forms.ChoiceField(label="Right answer", required=False, help_text="Becomes item.answer, which rewards compare with.")
    extract = forms.ChoiceField(label="Of it, take", choices=list(EXTRACTS.items()), required=False)
    system = forms.CharField(
        label="System message",
        max_length=MAX_SYSTEM,
        required=False,
        widget=forms.Textarea(attrs={"rows": 2}),
        help_text="Put before every prompt that has none, as in: End with the number alone.",
    )
    encoding = forms.ChoiceField(choices=[("", "recognise it"), *ENCODINGS.items()], required=False)
    eval_file = forms.FileField(
        label="Held-out rows in a file of their own",
        widget=file_input(),
        required=False,
        allow_empty_file=True,
        help_text="Instead of a share of the rows.",
    )
    drop_eval_file = forms.BooleanField(label="Do without it", required=False)

    def __init__(self, *args: Any, columns: list[str] = [], **kwargs: Any):  # noqa: B006
        super().__init__(*args, **kwargs)
        named = [(name, name) for name in columns]
        for name, nothing in (
            ("prompt", "choose a column"),
            ("messages", "choose a column"),
            ("context", "nothing"),
            ("answer", "as it is"),
        ):
            self.fields[name].choices = [("", nothing), *named]

    def clean(self) -> dict[str, Any]:
        given = super().clean()
        shape = given.get("shape")
        if shape in ("prompt", "messages") and not given.get(shape) and shape not in self.errors:
            self.add_error(shape, "Choose the column.")
        return given

    def options(self) -> dict[str, Any]:
        mapping = self.mapping().as_dict() if self.cleaned_data["shape"] else None  # without a file there was nothing to choose
        return {**super().options(), "mapping": mapping, "encoding": self.cleaned_data.get("encoding") or ""}

    def mapping(self) -> Mapping:
        given = self.cleaned_data
        shape = given["shape"]
        return Mapping(
            prompt=given["prompt"] if shape == "prompt" else "",
            context=given["context"] if shape == "prompt" else "",
            messages=given["messages"] if shape == "messages" else "",
            answer_turn=bool(given["answer_turn"]) and shape != "prompt",
            answer=given["answer"],
            extract=given["extract"],
            system=given["system"],
        )


def shape_of(mapping: Mapping) -> str:
    return "prompt" if mapping.prompt else "messages" if mapping.messages else "plain"


class WordsForm(PlanForm):
    level = forms.TypedChoiceField(
        label="Difficulty", choices=[(level, f"{level}: {text}") for level, text in word_problems.LEVELS.items()], coerce=int, initial=1
    )
    rows = forms.IntegerField(label="Problems", min_value=1, max_value=word_problems.MAX_ROWS, initial=1000)
    generator_seed = forms.IntegerField(
        label="Seed", min_value=0, max_value=MAX_SEED, initial=0, help_text="The same seed makes the same problems."
    )

    def origin(self) -> dict[str, Any]:
        given = self.cleaned_data
        return {"kind": "words", "level": given["level"], "rows": given["rows"], "seed": given["generator_seed"]}

    def named(self) -> str:
        return self.cleaned_data["name"] or f"Word problems, level {self.cleaned_data['level']}"


class GymForm(PlanForm):
    task = forms.ChoiceField()
    level = forms.TypedChoiceField(
        label="Difficulty", choices=[(0, "the task's own"), *((n, f"level {n}") for n in range(1, 6))], coerce=int, initial=0
    )
    rows = forms.IntegerField(label="Rows", min_value=1, max_value=MAX_GYM_ROWS, initial=1000)
    generator_seed = forms.IntegerField(
        label="Seed", min_value=0, max_value=MAX_SEED, initial=0, help_text="The same seed makes the same rows."
    )

    def __init__(self, *args: Any, tasks: list[str] = [], **kwargs: Any):  # noqa: B006
        super().__init__(*args, **kwargs)
        self.fields["task"].choices = [(name, name.replace("_", " ")) for name in tasks]

    def origin(self) -> dict[str, Any]:
        given = self.cleaned_data
        return {"kind": "gym", "task": given["task"], "level": given["level"], "rows": given["rows"], "seed": given["generator_seed"]}

    def named(self) -> str:
        return self.cleaned_data["name"] or self.cleaned_data["task"].replace("_", " ").capitalize()


class HubForm(PlanForm):
    hub_name = forms.RegexField(
        HUB_NAME,
        label="Dataset on the hub",
        max_length=200,
        error_messages={"invalid": "Write it as the hub shows it: owner/name."},
        widget=forms.TextInput(attrs={"placeholder": "owner/name", "autocomplete": "off", "spellcheck": "false"}),
    )
    file = forms.CharField(label="File", max_length=300, required=False, help_text="Left empty: the first file of training rows.")
    revision = forms.CharField(max_length=100, required=False, help_text="A branch, tag or commit; left empty, the newest.")

    def origin(self) -> dict[str, Any]:
        given = self.cleaned_data
        return {"kind": "hub", "name": given["hub_name"], "file": given["file"], "revision": given["revision"]}

    def named(self) -> str:
        return self.cleaned_data["name"] or self.cleaned_data["hub_name"][:MAX_NAME]


def stem(filename: str) -> str:
    """The name of a dataset that is given none."""
    name = file_name(filename)
    return (name.rpartition(".")[0] or name)[:MAX_NAME]
