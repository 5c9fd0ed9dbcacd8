"""The job form's part of a budget."""

from __future__ import annotations

from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError

from portal.billing import money

SECTION = "budget"
_WHY = "At the step before it would go beyond, the job pauses. Left empty, your credit is the limit."


class MoneyField(forms.CharField):
    """Typed in whole units, as in 12.50; cleaned to micro-units, or None."""

    def clean(self, value: Any) -> int | None:
        text = super().clean(value)
        try:
            return money.read(text) if text else None
        except ValueError as error:
            raise ValidationError(str(error)) from None


def fields() -> dict[str, forms.Field]:
    numbers = forms.NumberInput(attrs={"min": 1, "step": 1, "inputmode": "numeric"})
    amount = forms.TextInput(attrs={"inputmode": "decimal"})
    return {
        f"{SECTION}.micros": MoneyField(label=f"Budget in {settings.CURRENCY}", required=False, help_text=_WHY, widget=amount),
        f"{SECTION}.tokens": forms.IntegerField(
            label="Budget in tokens", required=False, help_text="Of all kinds together.", widget=numbers
        ),
    }


def raw(cleaned: dict[str, Any]) -> dict[str, Any]:
    """What was typed as the request's ``budget``; nothing when both are empty."""
    found = {name: cleaned.get(f"{SECTION}.{name}") for name in ("micros", "tokens")}
    typed = {name: value for name, value in found.items() if value is not None}
    return {SECTION: typed} if typed else {}
