"""Refusals that the engine's HTTP door answers with; each is an HTTP status and words for people. They survive pickling."""

from __future__ import annotations

from typing import Any

Problems = list[tuple[str, str]]


class EngineError(Exception):
    """``problems``: (dotted field path, what is wrong). ``code`` is stable, for programs; ``message`` is for people."""

    status = 500
    type = "engine_error"

    def __init__(self, message: str, *, code: str = "", param: str | None = None, problems: Problems | None = None):
        super().__init__(message)
        self.message = message
        self.code = code or self.type
        self.param = param
        self.problems = problems or []

    def __reduce__(self):
        return _rebuild, (type(self), self.message, self.code, self.param, self.problems)

    def body(self) -> dict[str, Any]:
        problems = [{"field": field, "message": message} for field, message in self.problems]
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code, "problems": problems}}


class Unauthorized(EngineError):
    status, type = 401, "unauthorized"


class NotFound(EngineError):
    status, type = 404, "not_found"


class Conflict(EngineError):
    status, type = 409, "conflict"


class TooLarge(EngineError):
    status, type = 413, "too_large"


class Invalid(EngineError):
    status, type = 422, "invalid"

    @classmethod
    def of(cls, problems: Problems) -> Invalid:
        message = "; ".join(f"{field}: {text}" for field, text in problems)
        return cls(message, param=problems[0][0] if problems else None, problems=problems)


class NotReady(EngineError):
    status, type = 503, "not_ready"


def _rebuild(cls: type[EngineError], message: str, code: str, param: str | None, problems: Problems) -> EngineError:
    return cls(message, code=code, param=param, problems=problems)
