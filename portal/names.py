"""Names that people give to things."""

from __future__ import annotations

from portal.errors import Invalid

MAX_NAME = 100
TYPED = "confirm"  # the field that a deletion is meant with
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


def file_name(sent: str) -> str:
    """As its owner calls a file that came by a form: browsers and clients write its quotation marks and line ends as %22, %0D and %0A."""
    return sent.replace("%22", '"').replace("%0D", " ").replace("%0A", " ")


def check_typed(typed: str, wanted: str) -> None:
    """Whether somebody means to delete what is called ``wanted``: its name was typed, give or take spaces. Raises ``Invalid``."""
    if typed.split() != wanted.split():
        raise Invalid([(TYPED, f"type {wanted} to delete it for good")])
