"""Signing secrets of rewards: sealed for their tenant before anything is stored. The portal never opens one to show it."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from engine.sealed import CannotOpen, Sealer, is_sealed

FIELD = "signing_secret"


def sealed(tenant_id: str, grader: dict[str, Any], problems: list[tuple[str, str]], path: str = "grader") -> dict[str, Any]:
    """``grader`` with each secret sealed for the tenant of this public id. One that is sealed already must be his own."""
    kept = dict(grader)
    if isinstance(secret := grader.get(FIELD), str):
        kept[FIELD] = _own(tenant_id, secret, problems, f"{path}.{FIELD}")
    if isinstance(parts := grader.get("graders"), dict):
        kept["graders"] = {name: sealed(tenant_id, part, problems, f"{path}.graders.{name}") for name, part in parts.items()}
    return kept


def _own(tenant_id: str, secret: str, problems: list[tuple[str, str]], path: str) -> str:
    sealer = Sealer(bearer=settings.ENGINE_SECRET, earlier=settings.ENGINE_SECRET_FALLBACKS)
    if not is_sealed(secret):
        return sealer.seal(secret, tenant=tenant_id)
    try:
        sealer.open(secret, tenant=tenant_id)
    except CannotOpen:
        problems.append((path, "is no secret of yours; write one of 16 to 200 characters"))
    return secret
