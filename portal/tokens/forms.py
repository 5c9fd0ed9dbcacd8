"""The form of a new API token."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django import forms

from tenants.access import Refused
from tenants.tokens import DEFAULT_SCOPES, SCOPES, networks

OVERLAPS = ((0, "At once"), (1, "After an hour"), (24, "After a day"), (168, "After a week"))
LIVES = ((7, "7 days"), (30, "30 days"), (90, "90 days"), (365, "1 year"))


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, help_text="What will use it, so that you know later what a revocation breaks.")
    days = forms.TypedChoiceField(label="Expires after", choices=LIVES, coerce=int, initial=90)
    scopes = forms.MultipleChoiceField(
        label="May",
        choices=[(scope, scope) for scope in SCOPES],
        initial=list(DEFAULT_SCOPES),
        help_text="What it needs and no more: whoever finds it may do as much.",
        widget=forms.CheckboxSelectMultiple,
        error_messages={"required": "Choose at least one thing that the token may do."},
    )

    addresses = forms.CharField(
        label="Only from",
        required=False,
        max_length=1000,
        widget=forms.Textarea(attrs={"rows": 2, "placeholder": "203.0.113.0/24"}),
        help_text="Addresses or networks, between commas or lines. Empty: from everywhere.",
    )

    def clean_addresses(self) -> tuple[str, ...]:
        try:
            return networks(self.cleaned_data["addresses"])
        except Refused as error:
            raise forms.ValidationError(f"{error!s}.") from error

    def wish(self) -> dict[str, Any]:
        """Arguments of ``tenants.actions.create_token``."""
        given = self.cleaned_data
        return {"scopes": tuple(given["scopes"]), "life": timedelta(days=given["days"]), "addresses": given["addresses"]}


class RotationForm(forms.Form):
    hours = forms.TypedChoiceField(
        label="The present one ends",
        choices=OVERLAPS,
        coerce=int,
        initial=24,
        help_text="Until then both work, so that programs can change over one by one.",
    )
