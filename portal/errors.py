"""What an action raises when it refuses. Pages show ``problems`` beside their fields; the API answers with the first and lists all."""

from __future__ import annotations


class Invalid(Exception):
    """A refused input. ``problems``: (dotted field path, what is wrong and how to mend it)."""

    code = "invalid"

    def __init__(self, problems: list[tuple[str, str]]):
        if not problems:
            raise ValueError("a refusal needs a reason")
        self.problems = problems
        super().__init__("; ".join(f"{field}: {message}" for field, message in problems))


class Conflict(Invalid):
    """The request is well formed, but not possible as things stand now."""

    code = "conflict"
