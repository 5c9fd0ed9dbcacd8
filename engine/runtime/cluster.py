"""Whose Ray the engine runs on: its own, or a cluster that somebody else runs (``RAY_ADDRESS``)."""

from __future__ import annotations

from collections.abc import Mapping

from engine.runtime.readiness import StartFailed


def joined_address(environment: Mapping[str, str], *, production: bool) -> str | None:
    """The address of the cluster to join, or None. Raises ``StartFailed`` for one that would let anybody in, where that counts.

    Whoever reaches an open Ray runs code as the engine's user: tenants' data, adapters and secrets are his.
    """
    address = environment.get("RAY_ADDRESS") or None
    guarded = environment.get("RAY_AUTH_MODE") == "token"
    if address is not None and production and not guarded:
        raise StartFailed(
            f"RAY_ADDRESS={address}: in production the cluster must ask for a token. Give its nodes and the engine RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (KubeRay: authOptions: {mode: token})"
        )
    return address
