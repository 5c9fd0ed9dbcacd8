"""Public ids: a readable prefix and 100 random bits in lowercase base32. Numeric keys never leave the database."""

from __future__ import annotations

import base64
import secrets


def new_id(prefix: str) -> str:
    return f"{prefix}_{base64.b32encode(secrets.token_bytes(13)).decode().lower()[:20]}"


def tenant_id() -> str:
    return new_id("ten")
