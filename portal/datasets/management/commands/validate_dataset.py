from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.datasets.validate import validate


class Command(BaseCommand):
    help = "Check a JSON Lines file as an upload would, without storing anything. Exit code 1 when it would be refused."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path)
        parser.add_argument("--json", action="store_true", help="print the whole report as JSON")

    def handle(self, *, file: Path, json: bool, **_: Any) -> None:
        try:
            with file.open("rb") as opened:
                report = validate(opened, max_bytes=settings.MAX_UPLOAD_BYTES).report
        except OSError as error:
            raise CommandError(f"cannot read {file}: {error.strerror}") from error
        self.stdout.write(_as_json(report) if json else _as_text(report))
        if report["error_total"]:
            raise SystemExit(1)


def _as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False)


def _as_text(report: dict[str, Any]) -> str:
    shown = [
        f"{'line ' + str(f['line']) + ': ' if f['line'] else ''}{f['message']}; {f['fix']}" for f in report["errors"] + report["warnings"]
    ]
    return "\n".join([*shown, f"{report['rows']} rows, {report['error_total']} errors, {report['warning_total']} warnings"])
