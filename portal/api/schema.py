"""What every operation may answer, whatever its view says: written into the schema once instead of at each view."""

from __future__ import annotations

import inspect
from typing import Any

from drf_spectacular.openapi import AutoSchema
from rest_framework.permissions import AllowAny

from portal.api.auth import role_for, scope_of
from portal.api.serializers import Closed

_ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorOut"}}}
_ALWAYS = {"429": "Too many calls; Retry-After says when to come again.", "503": "The engine does not answer at the moment."}
_WITH_LOGIN = {"401": "No token, or one that opens nothing.", "403": "The scope or the role is missing, or the organisation is closed."}
_WITH_BODY = {"413": "The body is too large.", "415": "Another kind of body is wanted.", "409": "Not possible as things stand."}


_USUAL = {"list": "All of them, newest first, by pages.", "retrieve": "One of them."}


class ByNoun(AutoSchema):
    """Operations in groups, one for each noun, in the words of their own method or view, never of a base; with the scope and the role that
    they need (``x-scope``, ``x-role``), and a deletion's body, which DRF's generator leaves out, where a view names one.
    """

    def get_tags(self) -> list[str]:
        return [self._tokenize_path()[2]]  # after api and v1

    def get_description(self) -> str:
        name = getattr(self.view, "action", None) or self.method.lower()
        own = next((vars(kind)[name] for kind in type(self.view).__mro__ if name in vars(kind)), None)
        return inspect.getdoc(own) or vars(type(self.view)).get("__doc__") or _USUAL.get(name, "")

    def get_extensions(self) -> dict[str, Any]:
        if AllowAny in self.view.permission_classes:
            return {}
        role = role_for(self.view, self.method)
        return {"x-scope": scope_of(self.view, self.method) or "", **({"x-role": str(role)} if role else {})}

    def _get_request_body(self, direction: Any = "request") -> dict[str, Any] | None:
        asked = self.get_request_serializer() if self.method == "DELETE" else None
        if not (isinstance(asked, type) and issubclass(asked, Closed)):
            return super()._get_request_body(direction)
        schema, required = self._get_request_for_media_type(asked, direction)
        return {"content": {"application/json": {"schema": schema}}, "required": required}


def common_errors(result: dict[str, Any], generator: Any, request: Any, public: bool) -> dict[str, Any]:
    """A drf-spectacular hook. Nothing that a view documents itself is replaced."""
    for path, operations in result["paths"].items():
        for method, operation in operations.items():
            if path.startswith("/api/v1/"):
                _add(operation["responses"], _answers(path, method, operation))
    return result


def _answers(path: str, method: str, operation: dict[str, Any]) -> dict[str, str]:
    known = {"400": "Something in the request is wrong; problems names each field.", "406": "Only JSON is given.", **_ALWAYS}
    if operation.get("security") != [{}] and operation.get("security") != []:
        known |= _WITH_LOGIN
    if "{" in path:
        known["404"] = "There is nothing here."
    return known | _WITH_BODY if method in ("post", "put", "patch", "delete") else known


def _add(responses: dict[str, Any], answers: dict[str, str]) -> None:
    for status, words in answers.items():
        answer = responses.setdefault(status, {"content": _ERROR})
        answer["description"] = answer.get("description") or words


def whole_answers(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """An answer has all its fields, whatever defaults their columns have: a generated client need not look whether each is there."""
    for name, shape in result["components"]["schemas"].items():
        if name.endswith("Out") and shape.get("properties"):
            shape["required"] = list(shape["properties"])
    return result
