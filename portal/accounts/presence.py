"""Being there: before what cannot be undone a person gives the password, or the second factor, once more; that is good for five minutes."""

from __future__ import annotations

from allauth.account.decorators import reauthentication_required
from allauth.core.exceptions import ReauthenticationRequired
from django.http import HttpRequest
from rest_framework.request import Request

from tenants import tokens
from tenants.access import Forbidden


@reauthentication_required
def prove(request: HttpRequest) -> None:
    """Raises ``ReauthenticationRequired``: allauth's middleware then asks, and goes on with this very request."""


class NotProven(Forbidden):
    code = "reauthentication_required"


def prove_by_api(request: Request) -> None:
    """A browser's session has to have proven it lately; a token was given the scope for this. Raises ``Forbidden``."""
    if isinstance(request.auth, tokens.Access):
        return
    try:
        prove(request._request)
    except ReauthenticationRequired:
        raise NotProven("Confirm at /accounts/reauthenticate/ that it is you, and send it again.") from None
