"""Looking for secrets where none may stand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

GENERATED = ("django-secret", "engine-secret", "metrics-token")


def generated_in(state: Path) -> dict[str, str]:
    """What an installation has made for itself, by the names of its files."""
    return {name: (state / name).read_text() for name in GENERATED if (state / name).is_file()}


def told(folder: Path, secrets: Mapping[str, str]) -> list[tuple[str, str]]:
    """(log, secret's name) of each that a log in ``folder`` tells. An empty secret or no log would prove nothing."""
    logs = [path for path in folder.rglob("*") if path.is_file()]
    if not logs or not all(len(secret) >= 8 for secret in secrets.values()):
        raise ValueError("nothing to look through, or nothing to look for")
    return [(path.name, name) for path in logs for name, secret in secrets.items() if secret.encode() in path.read_bytes()]
