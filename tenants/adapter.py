"""allauth's hooks: whoever signs up gets a tenant in the same transaction, or no account at all; mails that cannot be sent undo nothing."""

from __future__ import annotations

from typing import Any

import structlog
from allauth.account.adapter import DefaultAccountAdapter
from django.db import transaction

from tenants.actions import ensure_own_tenant

log = structlog.get_logger(__name__)


class AccountAdapter(DefaultAccountAdapter):
    def save_user(self, request: Any, user: Any, form: Any, commit: bool = True) -> Any:
        with transaction.atomic():
            user = super().save_user(request, user, form, commit=commit)
            if commit:
                ensure_own_tenant(user)
        return user

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """What was done stays done, and the answer is the same for all, whether the mail server is there or not: signing in sends anew."""
        try:
            super().send_mail(template_prefix, email, context)
        except OSError:  # smtplib's errors are OSErrors
            log.warning("mail_unsent", template=template_prefix, exc_info=True)
