"""``Idempotency-Key`` on every POST: one key, one effect, one answer, however often and however much at once it is sent.

The answer is kept for a day, sealed under the client's own key, of which only a hash is stored: an answer may hold a secret that is shown
once. A refusal is not kept, since it had no effect: the same key may be used again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone
from django.utils.crypto import salted_hmac
from rest_framework import exceptions
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response

from portal.api.auth import tenant_of
from portal.api.models import Reply
from portal.errors import Conflict, Invalid
from tenants.models import Tenant

MAX_KEY = 200
KEPT = timedelta(hours=24)
LEASE = timedelta(minutes=2)
WAIT_SECONDS = 10.0
_LOOK_SECONDS = 0.05


class Replayed(Exception):
    """The request was answered before."""

    def __init__(self, response: Response):
        self.response = response
        super().__init__("answered before")


class InProgress(exceptions.APIException):
    status_code = 409
    default_detail = "A request with this Idempotency-Key is being worked on; ask again in a moment."
    default_code = "in_progress"


class Claim:
    """The right to do what a key stands for."""

    def __init__(self, reply: Reply, key: str):
        self._reply, self._key = reply, key

    def keep(self, response: Response) -> None:
        """Whoever sends the key again gets this answer."""
        sealed = _cipher(self._key).encrypt(JSONRenderer().render(response.data)).decode()
        Reply.objects.filter(pk=self._reply.pk).update(status=response.status_code, sealed=sealed)

    def release(self) -> None:
        """Nothing was done under the key."""
        Reply.objects.filter(pk=self._reply.pk, status=None).delete()


def claim(
    tenant: Tenant, key: str, digest: str, *, clock: Callable[[], datetime] = timezone.now, wait_seconds: float = WAIT_SECONDS
) -> Claim:
    """Raises ``Replayed``, ``Conflict`` (another body), ``Invalid`` (a key too long), ``InProgress`` when another holds it for too long."""
    if len(key) > MAX_KEY:
        raise Invalid([("Idempotency-Key", f"at most {MAX_KEY} characters")])
    key_hash = hashlib.sha256(key.encode()).hexdigest()
    Reply.objects.filter(tenant=tenant, created_at__lt=clock() - KEPT).delete()
    deadline = time.monotonic() + wait_seconds
    while True:
        if mine := _take(tenant, key_hash, digest, clock()):
            return Claim(mine, key)
        found = Reply.objects.filter(tenant=tenant, key_hash=key_hash).first()
        if found and found.digest != digest:
            raise Conflict([("Idempotency-Key", "this key was used with another body; use a new key")])
        if found and found.status is not None:
            raise Replayed(_answer(found, key))
        if time.monotonic() > deadline:
            raise InProgress
        time.sleep(_LOOK_SECONDS)


def digest_of(request: Any) -> str:
    """Of the method's path and the parsed body, files by their content: the order of keys and a form's boundary do not matter."""
    digest = hashlib.sha256(request.path.encode())
    digest.update(json.dumps(request.data, sort_keys=True, default=str).encode() if not request.FILES else _form(request))
    return digest.hexdigest()


class OncePerKey:
    """For DRF views: their POSTs honour ``Idempotency-Key``. Before ``APIView`` in the bases."""

    _claim: Claim | None = None

    def initial(self, request: Any, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        key = request.headers.get("Idempotency-Key")
        if request.method == "POST" and key and (tenant := tenant_of(request)) is not None:
            self._claim = claim(tenant, key, digest_of(request))

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, Replayed):
            return exc.response
        try:
            return super().handle_exception(exc)
        except Exception:
            self._let_go()
            raise

    def finalize_response(self, request: Any, response: Any, *args: Any, **kwargs: Any) -> Any:
        if self._claim is not None and response.status_code < 300 and isinstance(response, Response):  # a stream is not kept
            claimed, self._claim = self._claim, None
            claimed.keep(response)
        self._let_go()
        return super().finalize_response(request, response, *args, **kwargs)

    def _let_go(self) -> None:
        if self._claim is not None:
            claimed, self._claim = self._claim, None
            claimed.release()


def _take(tenant: Tenant, key_hash: str, digest: str, now: datetime) -> Reply | None:
    """A new row, or one whose worker died: its lease is over."""
    try:
        with transaction.atomic():
            return Reply.objects.create(tenant=tenant, key_hash=key_hash, digest=digest, created_at=now, leased_until=now + LEASE)
    except IntegrityError:
        left = Reply.objects.filter(tenant=tenant, key_hash=key_hash, digest=digest, status=None, leased_until__lt=now)
        found = left.first()
        return found if found is not None and left.update(leased_until=now + LEASE) else None


def _answer(found: Reply, key: str) -> Response:
    data = json.loads(_cipher(key).decrypt(found.sealed.encode()))
    return Response(data, status=found.status, headers={"Idempotent-Replayed": "true"})


def _cipher(key: str) -> MultiFernet:
    """Seals under the secret of today; opens what an earlier one has sealed too."""
    secrets = (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)
    digests = [salted_hmac("portal.api.replies", key, secret=secret, algorithm="sha256").digest() for secret in secrets]
    return MultiFernet([Fernet(base64.urlsafe_b64encode(digest)) for digest in digests])


def _form(request: Any) -> bytes:
    parts = sorted((name, value) for name, values in request.POST.lists() for value in values)
    digest = hashlib.sha256(json.dumps(parts).encode())
    for name, files in sorted(request.FILES.lists()):
        for file in files:
            digest.update(f"{name}\0{file.name}\0{file.size}\0".encode())
            for chunk in file.chunks():
                digest.update(chunk)
            file.seek(0)
    return digest.digest()
