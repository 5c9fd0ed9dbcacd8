"""From where a request comes: the one place that reads forwarding headers, and only those that our own proxies wrote.

``ALLAUTH_TRUSTED_PROXY_COUNT`` says how many proxies stand in front (0: none, so the headers are anybody's invention and are ignored).
allauth's limits read the same setting through the same function.
"""

from __future__ import annotations

from allauth.account.adapter import get_adapter
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.http import HttpRequest


def client_address(request: HttpRequest) -> str:
    """The client's address, or "" where it cannot be told: then a limit counts under that, and no allow-list lets it in."""
    try:
        return get_adapter(request).get_client_ip(request)
    except (PermissionDenied, ImproperlyConfigured):
        return ""
