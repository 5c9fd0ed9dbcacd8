"""What a call may ask in its address: the names that it documents. A mistyped one is refused rather than passed over in silence."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import permissions

from portal.errors import Invalid


def documented(answer: Any, errors: dict[int, Any], success: int | tuple[int, str] = 200, **more: Any) -> Any:
    """What a view's method answers and takes: for the schema, and in ``asks`` for ``OnlyDocumented``. ``success``: (status, media type)
    where that is not JSON.
    """
    described = extend_schema(responses={success: answer, **errors}, **more)
    asked = [one for one in more.get("parameters", ()) if one.location == OpenApiParameter.QUERY and not one.exclude]

    def mark(method: Any) -> Any:
        method = described(method)
        method.asks = {one.name: bool(one.many) for one in asked}
        return method

    return mark


class OnlyDocumented(permissions.BasePermission):
    """The last of the permissions: whoever may not call is told so first."""

    def has_permission(self, request: Any, view: Any) -> bool:
        """Raises ``Invalid`` for each name that the call does not know, and for one that is given twice where one value is meant."""
        asks, problems = asked_by(view, request.method), []
        for name, values in request.query_params.lists():
            if name not in asks:
                takes = ", ".join(sorted(asks)) or "none"
                problems.append((name, f"this call knows no such parameter; it takes {takes}"))
            elif len(values) > 1 and not asks[name]:
                problems.append((name, "is given twice"))
        if problems:
            raise Invalid(problems)
        return True


def asked_by(view: Any, method: str) -> dict[str, bool]:
    """Name → whether it may be given several times."""
    action = getattr(view, "action", None) or ("get" if method == "HEAD" else method.lower())
    own = getattr(getattr(view, action, None), "asks", {})
    pages = view.paginator if action == "list" else None
    return {**own, pages.page_size_query_param: False, pages.cursor_query_param: False} if pages else own
