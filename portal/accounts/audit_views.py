"""The audit log as a page and as CSV, for admins and owners."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from portal.pages.access import tenant_page
from portal.query import choice, paged, text
from portal.streaming import body, gathered
from tenants import audit
from tenants.access import require
from tenants.models import AuditEntry, Role, Tenant

PAGE_ROWS = 50
NOUNS = ("organisation", "ownership", "member", "invitation", "token", "dataset", "reward", "job")
# As ``isoformat`` writes a time in UTC.
_MOMENT = re.compile(r"^(\d{4}-\d\d-\d\d)T(\d\d:\d\d)[\d:.]*\+00:00$")
COLUMNS = ("at", "actor_email", "operator_email", "action", "target", "target_name", "token_id", "address", "request_id")


@never_cache
@require_safe
@tenant_page
def index(request: HttpRequest) -> HttpResponse:
    """``?noun=token``, ``?who=ada@``, ``?page=2``."""
    require(request.tenant, request.user, Role.ADMIN)
    noun, who = choice(request, "noun", NOUNS, noun="kind of entries"), text(request, "who", 254)
    page = paged(request, entries(request.tenant, noun, who), PAGE_ROWS)
    rows = [(entry, audit.words(entry.action), _facts(entry)) for entry in page]
    kept = urlencode({name: value for name, value in (("noun", noun), ("who", who)) if value})
    context = {"rows": rows, "page": page, "nouns": NOUNS, "noun": noun, "who": who, "extra": f"&{kept}" if kept else ""}
    return render(request, "accounts/audit.html", context)


@never_cache
@require_safe
@tenant_page
def download(request: HttpRequest) -> HttpResponse:
    require(request.tenant, request.user, Role.ADMIN)
    headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
    return StreamingHttpResponse(body(request, gathered(_lines(request.tenant))), content_type="text/csv; charset=utf-8", headers=headers)


def entries(tenant: Tenant, noun: str = "", who: str = "") -> Any:
    """Newest first. A noun that there is not finds nothing."""
    found = tenant.audit.all()
    if noun:
        found = found.filter(action__startswith=f"{noun}.")
    return found.filter(actor_email__icontains=who) if who else found


def _lines(tenant: Tenant) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield writer.writerow([*COLUMNS, "details"])
    for entry in tenant.audit.iterator(500):
        yield writer.writerow([*(_harmless(getattr(entry, name)) for name in COLUMNS), _harmless(_details(entry))])


def _details(entry: AuditEntry) -> str:
    return "; ".join(f"{name}: {value}" for name, value in _facts(entry))


def _facts(entry: AuditEntry) -> list[tuple[str, str]]:
    """The details as a person reads them."""
    return [(key.replace("_", " "), _plain(value)) for key, value in entry.details.items()]


def _plain(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {_plain(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list | tuple):
        return ", ".join(map(_plain, value)) or "none"
    return _MOMENT.sub(r"\1 \2 UTC", str(value))


def _harmless(value: Any) -> str:
    """A spreadsheet takes a cell that begins so for a formula."""
    text = value.isoformat() if hasattr(value, "isoformat") else str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


class _Echo:
    def write(self, line: str) -> str:
        return line
