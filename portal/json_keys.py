"""Keys of JSON objects that people and programs write: one given twice would be passed over in silence."""

from __future__ import annotations

import json
from typing import Any


class GivenTwice(ValueError):
    """``key`` stands twice in one object."""

    def __init__(self, key: str):
        super().__init__(f"“{key[:100]}” stands twice in one object; keep one of them")
        self.key = key


def once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The ``object_pairs_hook`` of ``json.loads``. Raises ``GivenTwice``."""
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise GivenTwice(key)
        found[key] = value
    return found


def read_json(text: str) -> Any:
    """What stands in a form as JSON. Raises ``ValueError`` with words for who wrote it."""
    try:
        return json.loads(text, object_pairs_hook=once_each)
    except GivenTwice:
        raise
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is no JSON: {error}") from None
