from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from portal.datasets import bench, mapping
from portal.datasets.text import ENCODINGS
from portal.datasets.tokenizer_files import NoTokenizer, local_ruler
from portal.datasets.validate import Options, validate


class Command(BaseCommand):
    help = "Check a JSON Lines, CSV or Parquet file as an upload would, without storing anything. Exit code 1 when it would be refused."
    requires_system_checks: tuple[str, ...] = ()

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, nargs="?")
        parser.add_argument("--json", action="store_true", help="print the whole report as JSON")
        parser.add_argument("--model", default="", help="count tokens as this base model does; or a directory with its tokenizer.json")
        parser.add_argument("--encoding", default="", choices=["", *ENCODINGS], help="how the text is encoded, where it is not recognised")
        parser.add_argument("--mapping", default="", help='columns as JSON, as in {"prompt": "question", "answer": "answer"}')
        parser.add_argument("--bench", action="store_true", help="measure rows per second and memory on files made for it")
        parser.add_argument("--bench-bytes", type=int, default=bench.BYTES, help="size of each such file")

    def handle(self, *, file: Path | None, json: bool, model: str, bench: bool, bench_bytes: int, **options: Any) -> None:
        if bench:
            return self._bench(bench_bytes, json)
        if file is None:
            raise CommandError("name a file to check, or say --bench")
        report = self._report(file, model, **options)
        self.stdout.write(_as_json(report) if json else _as_text(report))
        if report["error_total"]:
            raise SystemExit(1)

    def _report(self, file: Path, model: str, *, encoding: str, mapping: str, **_: Any) -> dict[str, Any]:
        try:
            ruler = local_ruler(model) if model else None
            chosen = _mapping(mapping) if mapping else None
            options = Options(filename=file.name, encoding=encoding, mapping=chosen, ruler=ruler)
            with file.open("rb") as opened:
                return validate(opened, max_bytes=settings.MAX_UPLOAD_BYTES, options=options).report
        except NoTokenizer as error:
            raise CommandError(str(error)) from error
        except OSError as error:
            raise CommandError(f"cannot read {file}: {error.strerror}") from error

    def _bench(self, size: int, json: bool) -> None:
        for figures in bench.run(size):
            self.stdout.write(
                _as_json(figures)
                if json
                else "{format:8} {rows:>12,} rows {mb:>7,} MB {rows_per_second:>9,} rows/s {peak_mb:>5} MB at most".format(**figures)
            )


def _mapping(text: str) -> mapping.Mapping:
    try:
        return mapping.parse(json.loads(text))
    except (mapping.BadMapping, ValueError) as error:
        raise CommandError(f"--mapping: {error}") from error


def _as_json(report: dict[str, Any]) -> str:
    return json.dumps(report, ensure_ascii=False)


def _as_text(report: dict[str, Any]) -> str:
    shown = [
        f"{'line ' + str(f['line']) + ': ' if f['line'] else ''}{f['message']}; {f['fix']}" for f in report["errors"] + report["warnings"]
    ]
    return "\n".join([*shown, f"{report['rows']} rows, {report['error_total']} errors, {report['warning_total']} warnings"])
