"""What all views of the OpenAI shape share: its errors, its lists, its times. They stay out of our own API's schema."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework.exceptions import MethodNotAllowed
from rest_framework.request import Request
from rest_framework.views import APIView

from portal.api.auth import HasScope, tenant_of
from portal.api.idempotency import OncePerKey
from portal.api.numbers import whole
from portal.openai import errors
from tenants.models import Tenant

MAX_PAGE = 100


@extend_schema(exclude=True)
class View(OncePerKey, APIView):
    noun: str | None = None
    permission_classes = (HasScope,)  # clients of OpenAI's send parameters that are none of ours

    def get_exception_handler(self) -> Callable[..., Any]:
        return errors.handle

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """What a route does not offer is 405, whoever asks: a scope for it need not exist."""
        if not hasattr(self, (request.method or "").lower()):
            raise MethodNotAllowed(request.method or "")
        super().initial(request, *args, **kwargs)

    @property
    def tenant(self) -> Tenant:
        return tenant_of(self.request)


def page(request: Request, rows: Any, shape: Callable[[Any], dict[str, Any]], *, default: int, cursor: Any = None) -> dict[str, Any]:
    """OpenAI's list: ``limit`` rows behind the one that ``after`` names. ``rows`` are ordered by descending id.

    ``cursor``: from ``after`` to the row's id, raising ``Http404``; None: the row is found by its public id.
    """
    limit = whole(request.query_params, "limit", default, least=1, most=MAX_PAGE)
    if after := request.query_params.get("after"):
        rows = rows.filter(id__lt=cursor(after) if cursor else _id_of(rows, after))
    found = list(rows[: limit + 1])
    return listed([shape(row) for row in found[:limit]], has_more=len(found) > limit)


def listed(data: list[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return {"object": "list", "data": data, "has_more": has_more, **ends}


def seconds(moment: datetime | None) -> int | None:
    """Unix time, as OpenAI writes it."""
    return None if moment is None else int(moment.timestamp())


def _id_of(rows: Any, public_id: str) -> int:
    found = rows.filter(public_id=public_id[:40]).values_list("id", flat=True).first() if "\x00" not in public_id else None
    if found is None:
        raise Http404("after names nothing of this list")
    return found
