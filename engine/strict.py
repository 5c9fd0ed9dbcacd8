"""What every schema of ours is made of: strict frozen models, and ``SpecError`` that names each bad field by its path."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SpecError(ValueError):
    """A refused specification. ``problems`` holds (dotted field path, what is wrong and how to mend it)."""

    def __init__(self, problems: list[tuple[str, str]]):
        self.problems = problems
        super().__init__("; ".join(f"{field}: {message}" for field, message in problems))


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "spec"
