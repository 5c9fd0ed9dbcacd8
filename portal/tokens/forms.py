"""The form of a new API token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms

from tenants.tokens import SCOPES

LIVES = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="What will use it, so that you know later what a revocation breaks.")
    days = forms.TypedChoiceField(label="Expires after", choices=LIVES, coerce=int, initial=90)
    scopes = forms.MultipleChoiceField(
        label="May",
        choices=[(scope, scope) for scope in SCOPES],
        initial=list(SCOPES),
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one thing that the token may do."},
    )

    def wish(self) -> dict[str, Any]:
        """Arguments of ``tenants.actions.create_token``."""
        return {"scopes": tuple(self.cleaned_data["scopes"]), "life": timedelta(days=self.cleaned_data["days"])}
