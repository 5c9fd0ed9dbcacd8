"""Mails of accounts. Plain text; a name that a stranger chose stands in it as text and never in the subject."""

from __future__ import annotations

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.template.loader import render_to_string

from tenants.models import ApiToken, Invitation

log = structlog.get_logger(__name__)


def invitation(invited: Invitation, url: str) -> None:
    _send("Invitation to an organisation", "invitation", invited.email, {"invited": invited, "url": url})


def token_leaked(token: ApiToken, where: str) -> None:
    _send("An API token of yours was revoked", "token_leaked", token.user.email, {"token": token, "where": where})


def _send(subject: str, template: str, to: str, context: dict[str, object]) -> None:
    """A mail server that is down must not undo what was done; what is owed to a person stands on the page too."""
    text = render_to_string(f"mail/{template}.txt", context)
    try:
        send_mail(f"{settings.ACCOUNT_EMAIL_SUBJECT_PREFIX}{subject}", text, None, [to])
    except OSError:  # smtplib's errors are OSErrors
        log.warning("mail_unsent", template=template, exc_info=True)
