"""Words in the API's addresses: one that is not among those there are is refused by name, with all that are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from portal.errors import Invalid


def chosen(asked: Mapping[str, str], name: str, among: Collection[str], default: str = "") -> str:
    """``asked[name]``; ``default`` where it is not given or empty. Raises ``Invalid``."""
    text = asked.get(name) or default
    if text != default and text not in among:
        raise Invalid([(name, f"choose among {', '.join(among)}")])
    return text
