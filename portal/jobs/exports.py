"""A job's figures as a file."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime

from django.http import HttpResponse

from portal.jobs import series
from portal.jobs.models import Job


def figures_csv(job: Job, first: int, last: int) -> HttpResponse:
    """One line per step, oldest first; an unknown figure is an empty field."""
    found = series.exact(job, first, last)
    file = io.StringIO()
    lines = csv.writer(file)
    lines.writerow(["version", "committed_at", "skipped", *map(_inert, found["columns"])])
    for i, version in enumerate(found["versions"]):
        at = datetime.fromtimestamp(found["at"][i], UTC).isoformat()
        lines.writerow([version, at, found["skipped"][i] or "", *(values[i] for values in found["columns"].values())])
    headers = {"Content-Disposition": f'attachment; filename="{job.public_id}-figures.csv"'}
    return HttpResponse(file.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def _inert(name: str) -> str:
    """A grader's name is a tenant's text: no spreadsheet may take it for a formula."""
    return f"'{name}" if name[:1] in "=+-@\t\r" else name
