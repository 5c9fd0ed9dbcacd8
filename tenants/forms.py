"""allauth's forms where ours do more."""

from __future__ import annotations

from typing import Any

from allauth.account import forms
from allauth.core import context
from django.contrib.auth.hashers import make_password

INVITED = "invited_email"  # in the session of who has opened an invitation


class SignupForm(forms.SignupForm):
    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.initial = {"email": context.request.session.get(INVITED, ""), **self.initial}

    def try_save(self, request: Any) -> Any:
        """With a taken address no account is made. Its password is hashed all the same: how long the answer takes must not tell."""
        if self.account_already_exists:
            make_password(self.cleaned_data["password1"])
        return super().try_save(request)
