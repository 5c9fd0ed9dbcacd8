"""What every schema of ours is made of: strict frozen models, and ``SpecError`` that names each bad field by its path."""

from __future__ import annotations

from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError

_MOST_SHOWN = 40


class SpecError(ValueError):
    """A refused specification. ``problems`` holds (dotted field path, what is wrong and how to mend it)."""

    def __init__(self, problems: list[tuple[str, str]]):
        self.problems = problems
        super().__init__("; ".join(f"{field}: {message}" for field, message in problems))


def _check_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number", f"Input should be a valid number, not {str(value).lower()}")
    if isinstance(value, str | bytes):
        raise PydanticCustomError("number", "Input should be a valid number, not the text {given}", {"given": repr(value[:_MOST_SHOWN])})
    return value


# Pydantic takes true for 1 and "8" for 8. Its strict mode would not take a list for a tuple either, which is how JSON writes one.
NUMBER = BeforeValidator(_check_number)


class Strict(BaseModel):
    """A field that is a number takes numbers only. Those within containers say so themselves, by ``NUMBER``."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        numbers = [field for field in cls.model_fields.values() if _is_number(field.annotation) and NUMBER not in field.metadata]
        for field in numbers:
            field.metadata.append(NUMBER)  # the last, so that it looks before the limits do, and these stay in the JSON schema
        if numbers:
            cls.model_rebuild(force=True)


def _is_number(annotation: Any) -> bool:
    """Whether it is an int, a float, or either or nothing."""
    if get_origin(annotation) is Annotated:
        return _is_number(get_args(annotation)[0])
    parts = set(get_args(annotation) or (annotation,)) - {type(None)}
    return bool(parts) and parts <= {int, float}


def dotted(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) or "spec"
