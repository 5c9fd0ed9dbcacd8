from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.billing import ledger, money
from portal.billing.models import Entry
from portal.errors import Invalid


class Command(BaseCommand):
    help = "Take one entry of the ledger back, whole, by a row that says why. Twice is once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("entry", type=int, help="its number")
        parser.add_argument("--reason", required=True, help="the tenant reads it")
        parser.add_argument("--by", required=True, help="who does it")

    def handle(self, *, entry: int, reason: str, by: str, **_: Any) -> None:
        found = Entry.objects.select_related("tenant").filter(pk=entry).first()
        if found is None:
            raise CommandError(f"there is no entry {entry}")
        try:
            row = ledger.reverse(found, reason, by, timezone.now())
        except Invalid as error:
            raise CommandError(str(error)) from None
        self.stdout.write(f"entry {row.pk} takes entry {entry} back: {money.shown(row.amount_micros)} for {found.tenant}")
