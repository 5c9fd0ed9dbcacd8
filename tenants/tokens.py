"""API tokens: ``mrl_live_<id>_<secret><checksum>``. Own code, since django-rest-knox has no scopes, no checksum and no tenant.

The prefix lets secret scanners find a leaked token, the checksum lets them (and us) discard a mistyped one without a query, the id
finds the row, and the secret is compared with a hash keyed by the site's own key: a stolen table opens nothing. An id that does not
exist costs the same comparison as one that does. Tokens of earlier releases, without ``live_``, go on working.
"""

from __future__ import annotations

import base64
import ipaddress
import re
import secrets
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import F, Q
from django.utils.crypto import constant_time_compare, salted_hmac

from tenants.access import Refused
from tenants.models import ApiToken, Role, Tenant, User

PREFIX = "mrl_live"
SCOPES = (
    *("datasets:read", "datasets:write"),
    *("rewards:read", "rewards:write"),
    *("jobs:read", "jobs:write"),
    *("models:read",),
    *("billing:read", "billing:write"),
    *("organisation:read", "organisation:write"),
    *("tokens:read", "tokens:write"),
    *("audit:read",),
)
# With these a leaked token could make itself at home, or lift the limits of what is spent; a person chooses them knowingly.
POWERFUL = frozenset({"organisation:write", "tokens:write", "billing:write"})
DEFAULT_SCOPES = tuple(scope for scope in SCOPES if scope not in POWERFUL)
DEFAULT_LIFE = timedelta(days=90)
LONGEST_LIFE = timedelta(days=366)
DEFAULT_OVERLAP = timedelta(hours=24)
LONGEST_OVERLAP = timedelta(days=7)
MAX_ADDRESSES = 20
USE_RECORDED_EVERY = timedelta(minutes=1)
_FORM = re.compile(r"mrl_(?:live_)?([a-z2-7]{12})_([a-z2-7]{32})([a-z2-7]{7})")
_NOBODYS_HASH = "0" * 64


class BadToken(Exception):
    """A token that opens nothing. ``code``: malformed | unknown | expired | revoked | no_member | address."""

    def __init__(self, code: str, message: str):
        self.code = code
        super().__init__(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    """What a valid token grants."""

    token: ApiToken
    user: User
    tenant: Tenant
    role: str
    scopes: frozenset[str]


def issue(
    tenant: Tenant,
    user: User,
    name: str,
    now: datetime,
    *,
    scopes: tuple[str, ...] = SCOPES,
    life: timedelta = DEFAULT_LIFE,
    addresses: tuple[str, ...] = (),
) -> tuple[ApiToken, str]:
    """A new token as (row, text). The text is shown once and never stored."""
    token_id, secret = _random(12), _random(32)
    token = ApiToken.objects.create(
        tenant=tenant,
        user=user,
        name=name,
        token_id=token_id,
        secret_hash=_hash(secret, settings.SECRET_KEY),
        scopes=sorted(scopes),
        addresses=list(addresses),
        created_at=now,
        expires_at=now + life,
    )
    return token, f"{PREFIX}_{token_id}_{secret}{_checksum(token_id, secret)}"


def check(text: str, now: datetime, *, address: str = "") -> Access:
    """What ``text`` grants now to a caller at ``address``; raises ``BadToken``. The role is today's, not the one of the day of issue."""
    token = find(text)
    if token.revoked_at is not None:
        raise BadToken("revoked", "This API token was revoked. Create a new one under Settings, API tokens.")
    if now >= token.expires_at:
        raise BadToken("expired", f"This API token expired on {token.expires_at:%Y-%m-%d}. Create a new one under Settings, API tokens.")
    membership = token.tenant.memberships.filter(user=token.user, user__is_active=True).first()
    if membership is None:
        raise BadToken("no_member", "The person who created this API token no longer belongs to its organisation.")
    if token.addresses and not _is_within(address, token.addresses):
        raise BadToken("address", f"This API token may not be used from {address or 'an unknown address'}.")
    _record_use(token, now)
    return Access(token=token, user=token.user, tenant=token.tenant, role=membership.role, scopes=_effective(token.scopes, membership.role))


def find(text: str) -> ApiToken:
    """The row of ``text``, whatever its state. Raises ``BadToken``: malformed or unknown."""
    token_id, secret = _parse(text)
    token = ApiToken.objects.select_related("tenant", "user").filter(token_id=token_id).first()
    if not _matches(secret, token.secret_hash if token else _NOBODYS_HASH) or token is None:
        raise BadToken("unknown", "This API token is not known. Create one under Settings, API tokens.")
    return token


def is_live(token_pk: int, now: datetime) -> bool:
    """Whether a token that opened a connection may keep it open."""
    live = ApiToken.objects.filter(pk=token_pk, revoked_at=None, expires_at__gt=now, user__is_active=True)
    return live.filter(tenant__memberships__user=F("user"), tenant__suspended_at=None).exists()


def networks(text: str) -> tuple[str, ...]:
    """Addresses and networks as people write them, between commas, blanks or lines. Raises ``Refused`` naming the one that is none."""
    found = []
    for word in text.replace(",", " ").split():
        try:
            found.append(str(ipaddress.ip_network(word, strict=False)))
        except ValueError:
            raise Refused("addresses", f"{word[:60]!a} is no address or network; write 203.0.113.7 or 203.0.113.0/24") from None
    if len(found) > MAX_ADDRESSES:
        raise Refused("addresses", f"at most {MAX_ADDRESSES} networks")
    return tuple(dict.fromkeys(found))


def revoke(token: ApiToken, now: datetime) -> bool:
    """Whether this call revoked it. Holds from the next request on."""
    return bool(ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=now))


def _effective(scopes: list[str], role: str) -> frozenset[str]:
    granted = frozenset(scopes) & frozenset(SCOPES)
    return frozenset(s for s in granted if not s.endswith(":write")) if role == Role.VIEWER else granted


def _parse(text: str) -> tuple[str, str]:
    found = _FORM.fullmatch(text)
    if not found:
        raise BadToken("malformed", "This is not an API token: one begins with mrl_live_ and has 61 characters.")
    token_id, secret, checksum = found.groups()
    if not constant_time_compare(checksum, _checksum(token_id, secret)):
        raise BadToken("malformed", "This API token was mistyped or cut: its checksum does not fit.")
    return token_id, secret


def _record_use(token: ApiToken, now: datetime) -> None:
    """At most one write a minute: a busy client must not turn every read into a write, nor wait for the database's one writer."""
    if token.last_used_at is not None and token.last_used_at >= now - USE_RECORDED_EVERY:
        return
    stale = Q(last_used_at=None) | Q(last_used_at__lt=now - USE_RECORDED_EVERY)
    ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)


def _random(length: int) -> str:
    return base64.b32encode(secrets.token_bytes(length)).decode().lower()[:length]


def _checksum(token_id: str, secret: str) -> str:
    crc = zlib.crc32(f"{token_id}_{secret}".encode()).to_bytes(4, "big")
    return base64.b32encode(crc).decode().lower().rstrip("=")


def _hash(secret: str, key: str) -> str:
    return salted_hmac("tenants.tokens", secret, secret=key, algorithm="sha256").hexdigest()


def _matches(secret: str, wanted: str) -> bool:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return any([constant_time_compare(_hash(secret, key), wanted) for key in keys])  # a list: no key is left out because one fitted


def _is_within(address: str, allowed: list[str]) -> bool:
    try:
        here = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(here, "ipv4_mapped", None)  # ::ffff:203.0.113.7, as a socket for both families gives it
    return any((mapped or here) in ipaddress.ip_network(network) for network in allowed)
