from __future__ import annotations

from typing import Any

from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.pagination import CursorPagination


class NewestFirst(CursorPagination):
    """Pages by cursor: what is added or deleted while somebody pages makes no row appear twice or never."""

    ordering = "-id"
    page_size = 50
    max_page_size = 200
    page_size_query_param = "limit"

    def decode_cursor(self, request: Any) -> Any:
        try:
            return super().decode_cursor(request)
        except NotFound:
            raise ValidationError({"cursor": ["is none of ours; follow next and previous as they come"]}) from None
