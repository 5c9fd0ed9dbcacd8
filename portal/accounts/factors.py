"""Second factors at rest: the seeds of authenticator apps and of recovery codes are sealed under the site's key before they are stored.

allauth asks its adapter for both directions. A seed that an earlier release stored in plain text still opens, and the migration seals it.
Public keys of security keys are no secrets and stay as they are.
"""

from __future__ import annotations

from typing import Any

from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import SECRET_SESSION_KEY
from allauth.mfa.utils import decrypt, encrypt
from django.conf import settings
from django.db import transaction

from engine.sealed import CannotOpen, Sealer

_FOR = "second factors"  # what the seal names, as a tenant's secret names the tenant
_SECRETS = ("secret", "seed", "migrated_codes")  # of an app; of recovery codes; a list of codes that came from elsewhere


class FactorAdapter(DefaultMFAAdapter):
    def encrypt(self, text: str) -> str:
        return _sealer().seal(text, tenant=_FOR)

    def decrypt(self, encrypted_text: str) -> str:
        """Raises ``CannotOpen``: no code must ever be right because its seed is not there."""
        return _sealer().open(encrypted_text, tenant=_FOR)


class AppForm(ActivateTOTPForm):
    """The seed that is offered lies in the session until its first code was right: sealed there too."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.secret = decrypt(self.secret)
        context.request.session[SECRET_SESSION_KEY] = encrypt(self.secret)


def seal_anew(authenticators: Any) -> int:
    """Seals every secret of these rows (a queryset) under the key of today, whatever it was sealed under; says how many rows have one.

    Raises ``CannotOpen`` where none of the keys opens one; what was done before it stays.
    """
    return sum(_sealed_anew(authenticators, pk) for pk in list(authenticators.values_list("pk", flat=True)))


def _sealed_anew(authenticators: Any, pk: int) -> bool:
    with transaction.atomic():  # a recovery code may be used up meanwhile, which the same field says
        row = authenticators.select_for_update().filter(pk=pk).first()
        kept = {name: row.data[name] for name in _SECRETS if name in row.data} if row else {}
        if kept:
            authenticators.filter(pk=pk).update(data={**row.data, **{name: _anew(secret) for name, secret in kept.items()}})
    return bool(kept)


def _anew(secret: Any) -> Any:
    return [_anew(one) for one in secret] if isinstance(secret, list) else encrypt(decrypt(secret))


def unopened(authenticators: Any) -> tuple[int, int]:
    """(rows that the key of today does not open but an earlier one, rows that none opens)."""
    today, ever, found = Sealer(bearer=settings.SECRET_KEY), _sealer(), [0, 0]
    for data in authenticators.values_list("data", flat=True):
        secrets = [data[name] for name in _SECRETS if name in data]
        texts = [text for secret in secrets for text in (secret if isinstance(secret, list) else [secret])]
        if not _opens(today, texts):
            found[0 if _opens(ever, texts) else 1] += 1
    return found[0], found[1]


def _opens(sealer: Sealer, texts: list[str]) -> bool:
    try:
        for text in texts:
            sealer.open(text, tenant=_FOR)
    except CannotOpen:
        return False
    return True


def _sealer() -> Sealer:
    return Sealer(bearer=settings.SECRET_KEY, earlier=tuple(settings.SECRET_KEY_FALLBACKS))
