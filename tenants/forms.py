"""allauth's forms where ours do more."""

from __future__ import annotations

from typing import Any

from allauth.account import forms
from django.contrib.auth.hashers import make_password


class SignupForm(forms.SignupForm):
    def try_save(self, request: Any) -> Any:
        """With a taken address no account is made. Its password is hashed all the same: how long the answer takes must not tell."""
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])
        return super().try_save(request)
