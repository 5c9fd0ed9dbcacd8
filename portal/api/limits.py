"""How often the API may be called: per token (or person) and per tenant, counted by the minute in the cache that all web processes share.

The answer's headers say what is left. A cache that is down closes nothing: limits protect the service, they do not guard secrets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.core.cache import cache
from django.utils import timezone
from rest_framework.throttling import BaseThrottle

from portal.api.auth import tenant_of
from tenants import tokens
from tenants.addresses import client_address

log = structlog.get_logger(__name__)
WINDOW_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Count:
    limit: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)

    @property
    def over(self) -> bool:
        return self.used > self.limit


class PerToken(BaseThrottle):
    """A call counts even if it is refused: who goes on asking goes on waiting for the next minute, never longer."""

    clock = staticmethod(timezone.now)

    def allow_request(self, request: Any, view: Any) -> bool:
        now = self.clock()
        self._wait = WINDOW_SECONDS - int(now.timestamp()) % WINDOW_SECONDS
        limits = settings.API_CALLS_PER_MINUTE
        own = count(_who(request), limits["token"], now)
        tenant = tenant_of(request)
        shared = count(f"tenant:{tenant.pk}", limits["tenant"], now) if tenant else None
        request._request.rate_headers = _headers(own, shared, self._wait)
        return not own.over and not (shared and shared.over)

    def wait(self) -> float:
        return self._wait


class PerAddress(PerToken):
    """For what anybody may call. Far fewer: no person needs more."""

    per_minute = 30

    def allow_request(self, request: Any, view: Any) -> bool:
        now = self.clock()
        self._wait = WINDOW_SECONDS - int(now.timestamp()) % WINDOW_SECONDS
        own = count(f"address:{type(view).__name__}:{client_address(request._request)}", self.per_minute, now)
        request._request.rate_headers = _headers(own, None, self._wait)
        return not own.over


def count(who: str, limit: int, now: datetime) -> Count:
    """One more by ``who`` in this minute."""
    key = f"calls:{who}:{int(now.timestamp()) // WINDOW_SECONDS}"
    try:
        cache.add(key, 0, timeout=2 * WINDOW_SECONDS)
        return Count(limit=limit, used=cache.incr(key))
    except ValueError:  # it went away between the two
        return Count(limit=limit, used=1)
    except Exception:  # whatever the cache's server does
        log.warning("limits_uncounted", exc_info=True)
        return Count(limit=limit, used=0)


def _who(request: Any) -> str:
    if isinstance(request.auth, tokens.Access):
        return f"token:{request.auth.token.pk}"
    return f"user:{request.user.pk}" if request.user.is_authenticated else f"address:{client_address(request._request)}"


def _headers(own: Count, shared: Count | None, reset: int) -> dict[str, str]:
    headers = {"X-RateLimit-Limit": str(own.limit), "X-RateLimit-Remaining": str(own.left), "X-RateLimit-Reset": str(reset)}
    if shared:
        headers |= {"X-RateLimit-Tenant-Limit": str(shared.limit), "X-RateLimit-Tenant-Remaining": str(shared.left)}
    return headers
