"""allauth's hook: whoever signs up gets a tenant in the same transaction, or no account at all."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.db import transaction

from tenants.actions import ensure_own_tenant


class AccountAdapter(DefaultAccountAdapter):
    def save_user(self, request: Any, user: Any, form: Any, commit: bool = True) -> Any:
        with transaction.atomic():
            user = super().save_user(request, user, form, commit=commit)
            if commit:
                ensure_own_tenant(user)
        return user
