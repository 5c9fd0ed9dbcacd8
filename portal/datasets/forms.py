"""The upload form."""

from __future__ import annotations

from django import forms

from portal.names import MAX_NAME

SHARES = ((0.1, "10 % (usual)"), (0.2, "20 %"), (0.05, "5 %"), (0.0, "None: I do not want to know whether it got better"))


class UploadForm(forms.Form):
    name = forms.CharField(max_length=MAX_NAME, required=False, help_text="Left empty, it is named after the file.")
    file = forms.FileField(widget=forms.FileInput(attrs={"accept": ".jsonl,.ndjson,.json,application/jsonl"}), allow_empty_file=True)
    eval_share = forms.TypedChoiceField(
        label="Held out",
        choices=SHARES,
        coerce=float,
        initial=0.1,
        help_text="Rows that are never trained on. They tell whether the model got better or only learned the training rows.",
    )

    def named(self) -> str:
        return self.cleaned_data["name"] or self.cleaned_data["file"].name.rpartition(".")[0] or self.cleaned_data["file"].name
