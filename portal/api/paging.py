from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination

from portal.api.numbers import whole


class NewestFirst(CursorPagination):
    """Pages by cursor: what is added or deleted while somebody pages makes no row appear twice or never."""

    ordering = "-id"
    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"

    def get_page_size(self, request: Any) -> int:
        return whole(request.query_params, "limit", self.page_size, least=1, most=self.max_page_size)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        limits = {"type": "integer", "minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
        said = super().get_schema_operation_parameters(view)
        return [{**one, "schema": limits} if one["name"] == "limit" else one for one in said]

    def decode_cursor(self, request: Any) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise ValidationError({"cursor": ["is none of ours; follow next and previous as they come"]}) from None
