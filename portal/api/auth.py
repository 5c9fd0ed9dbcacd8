"""Who calls the API and what they may do: API tokens with scopes, or the browser's session with its role."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from rest_framework import authentication, exceptions, permissions

from tenants import origin, tokens, walls_rows
from tenants.access import closed, require
from tenants.addresses import client_address
from tenants.models import Role

_SAFE = ("GET", "HEAD", "OPTIONS")


class TokenAuthentication(authentication.BaseAuthentication):
    """``Authorization: Bearer mrl_live_…``. Sets ``request.tenant`` to the token's."""

    def authenticate(self, request: Any) -> tuple[Any, tokens.Access] | None:
        header = authentication.get_authorization_header(request).decode("latin-1").split()
        if not header or header[0].lower() != "bearer":
            return None
        try:
            address = client_address(request._request)
            with walls_rows.everything():
                access = tokens.check(header[1] if len(header) == 2 else "", timezone.now(), address=address)
        except tokens.BadToken as error:
            raise exceptions.AuthenticationFailed(str(error), code=f"token_{error.code}") from None
        request._request.tenant = access.tenant
        walls_rows.enter(access.tenant.pk)
        origin.add(token_id=access.token.token_id)
        return access.user, access

    def authenticate_header(self, request: Any) -> str:
        return 'Bearer realm="api"'


class SessionAuthentication(authentication.SessionAuthentication):
    """The browser's session, with CSRF checks; the tenant is the one that the middleware chose."""


class HasScope(permissions.BasePermission):
    """The view's ``noun`` and the method make the scope: ``jobs:read``, ``jobs:write``. A view without a noun needs a login only; one that
    ``reads_only`` changes nothing but what the caller sees, whatever the method. ``roles``, by method, are asked for here already, before
    the body is read, where more than a member's is needed.
    """

    message = "This token or role does not allow it."

    def has_permission(self, request: Any, view: Any) -> bool:
        if not request.user.is_authenticated or tenant_of(request) is None:
            return False
        if not getattr(view, "open_when_closed", False) and (reason := closed(tenant_of(request), request.user)):
            raise reason
        scope = scope_of(view, request.method)
        if scope is None or not hasattr(view, request.method.lower()):  # what the view has no answer to is a 405, not a missing scope
            return True
        self.message = f"This needs the scope {scope}."
        if scope not in granted(request):
            return False
        if role := role_for(view, request.method):
            require(tenant_of(request), request.user, role)
        return True


def scope_of(view: Any, method: str) -> str | None:
    """What a call needs; None: a login is enough."""
    if getattr(view, "noun", None) is None:
        return None
    reads = method in _SAFE or getattr(view, "reads_only", False)
    return f"{view.noun}:{'read' if reads else 'write'}"


def role_for(view: Any, method: str) -> str | None:
    """What a call needs beyond its scope; None: the scope says it all."""
    return getattr(view, "roles", {}).get("GET" if method == "HEAD" else method)


def tenant_of(request: Any) -> Any:
    """The caller's tenant, or None for a person without one."""
    return getattr(request._request, "tenant", None)


def granted(request: Any) -> frozenset[str]:
    """The scopes of the caller's token, or of the person's role."""
    if isinstance(request.auth, tokens.Access):
        return request.auth.scopes
    allowed = tokens.SCOPES if request._request.role != Role.VIEWER else tuple(s for s in tokens.SCOPES if s.endswith(":read"))
    return frozenset(allowed)


class TokenScheme(OpenApiAuthenticationExtension):
    target_class = "portal.api.auth.TokenAuthentication"
    name = "token"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "bearerFormat": "mrl_live_…"}


class SessionScheme(OpenApiAuthenticationExtension):
    target_class = "portal.api.auth.SessionAuthentication"
    name = "session"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {"type": "apiKey", "in": "cookie", "name": "sessionid"}
