"""A report as a file to take away."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

from django.http import HttpResponse

_FIELDS = ("severity", "file", "line", "column", "cause", "message", "fix", "text")


def as_json(report: dict[str, Any], name: str) -> HttpResponse:
    body = json.dumps(report, ensure_ascii=False, indent=1)
    return _download(body, "application/json", f"{name}-report.json")


def as_csv(report: dict[str, Any], name: str) -> HttpResponse:
    """One line a finding. A cell that a spreadsheet would take for a formula is quoted with an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_FIELDS)
    for severity in ("error", "warning"):
        for fault in report.get(f"{severity}s", []):
            writer.writerow([_harmless(severity if field == "severity" else fault.get(field)) for field in _FIELDS])
    return _download("\ufeff" + out.getvalue(), "text/csv; charset=utf-8", f"{name}-report.csv")


def _harmless(value: Any) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _download(body: str, kind: str, filename: str) -> HttpResponse:
    return HttpResponse(body, content_type=kind, headers={"Content-Disposition": f'attachment; filename="{filename}"'})
