"""Secrets of tenants, sealed where they come in (the portal) and opened where they are used (the process that signs a request).

Between the two, in the database, in specs, in the journal and in backups of these, stands only the sealed text:

    sealed:1:<base64url of nonce (12 bytes) + AES-256-GCM(secret, associated data: tenant)>

The key is derived (HKDF-SHA256) from the bearer secret that portal and engine share anyway. The tenant's name is bound in, so a sealed text
that somehow reached another tenant is of no use to him.
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass
from functools import cached_property

PREFIX = "sealed:1:"
_NONCE_BYTES = 12
_PURPOSE = b"marlaas: tenants' secrets, version 1"


class CannotOpen(ValueError):
    """Sealed for another tenant or under another key, or not whole."""


def is_sealed(text: str) -> bool:
    return text.startswith(PREFIX)


@dataclass(frozen=True, kw_only=True)
class Sealer:
    """``bearer``: the secret between portal and engine; ``earlier``: those it has replaced, which still open what they have sealed."""

    bearer: str
    earlier: tuple[str, ...] = ()

    def seal(self, secret: str, *, tenant: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._ciphers[0].encrypt(nonce, secret.encode(), tenant.encode())
        return PREFIX + base64.urlsafe_b64encode(sealed).decode()

    def open(self, text: str, *, tenant: str) -> str:
        """The secret; a text that was never sealed (of an earlier release) is the secret itself. Raises ``CannotOpen``."""
        from cryptography.exceptions import InvalidTag

        if not is_sealed(text):
            return text
        for cipher in self._ciphers:
            try:
                sealed = base64.b64decode(text.removeprefix(PREFIX), altchars=b"-_", validate=True)
                return cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], tenant.encode()).decode()
            except (InvalidTag, binascii.Error, ValueError):
                continue
        raise CannotOpen("was sealed for somebody else, or under another secret between portal and engine")

    @cached_property
    def _ciphers(self):
        # Here, so that who only reads specs does not load it.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        secrets = (self.bearer, *self.earlier)
        return [AESGCM(HKDF(algorithm=SHA256(), length=32, salt=None, info=_PURPOSE).derive(secret.encode())) for secret in secrets]

    def __repr__(self) -> str:
        return "Sealer()"
