from __future__ import annotations

import json
import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser
from django.utils import timezone

from portal.billing import stripe_client
from portal.celery import app
from portal.doctor.checks import World, examine

_SIGNS = {"ok": "ok  ", "warn": "warn", "bad": "BAD "}


class Command(BaseCommand):
    help = "Look at everything that this installation leans on, and say what is wrong and how to mend it. Exit code 1 if anything is bad."
    requires_system_checks: tuple[str, ...] = ()  # a broken installation is what it is for

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="for programs: a list of {check, code, level, says, mend}")

    def handle(self, *, json: bool, **_: Any) -> None:
        findings = examine(World(stripe=_stripe, publish=_publish))
        self.stdout.write(_as_json(findings) if json else _as_text(findings))
        if any(finding.level == "bad" for finding in findings):
            sys.exit(1)


def _as_json(findings: list[Any]) -> str:
    return json.dumps([asdict(finding) for finding in findings], indent=2)


def _as_text(findings: list[Any]) -> str:
    lines = []
    for finding in findings:
        lines.append(f"{_SIGNS[finding.level]}  {finding.check:9} {finding.says}")
        if finding.mend:
            lines.append(f"      {'':9} → {finding.mend}")
    return "\n".join(lines)


def _publish() -> None:
    """A message on a queue of its own, and off again."""
    with app.connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=3)
        with connection.SimpleQueue("doctor") as queue:
            queue.put({"doctor": 1})
            queue.get(block=True, timeout=3).ack()


def _stripe() -> str:
    """One cheap question that any key which may bill may ask; the key's mode."""
    if (account := stripe_client.connect()) is not None:
        account.invoices(timezone.now() - timedelta(minutes=1))
    return "live" if "_live_" in settings.STRIPE_KEY else "test"
