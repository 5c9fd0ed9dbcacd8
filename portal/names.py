"""Names that people give to things."""

from __future__ import annotations

MAX_NAME = 100
JOINERS = "\u200c\u200d"  # not printable by themselves, but part of Persian and Hindi spelling and of emoji


def clean_name(name: object, default: str = "") -> tuple[str, list[tuple[str, str]]]:
    """(name with its white space squeezed, problems)."""
    if name is None or name == "":
        name = default
    if not isinstance(name, str):
        return "", [("name", "must be text")]
    squeezed = " ".join(name.split())
    if not squeezed:
        return "", [("name", "give it a name")]
    if len(squeezed) > MAX_NAME:
        return "", [("name", f"at most {MAX_NAME} characters, got {len(squeezed)}")]
    if not squeezed.translate(dict.fromkeys(map(ord, JOINERS))).isprintable():
        return "", [("name", "contains control characters; remove them")]
    return squeezed, []
