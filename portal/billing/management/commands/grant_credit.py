from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.billing import ledger, money
from portal.errors import Invalid
from tenants.models import Tenant


class Command(BaseCommand):
    help = "Give a tenant credit. The same --key gives it once, however often the command runs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("tenant", help="its id, ten_…")
        parser.add_argument("amount", help="in whole units, as in 50.00")
        parser.add_argument("--reason", required=True, help="the tenant reads it")
        parser.add_argument("--by", required=True, help="who gives it")
        parser.add_argument("--key", required=True, help="a name of this grant, such as the ticket's number")

    def handle(self, *, tenant: str, amount: str, reason: str, by: str, key: str, **_: Any) -> None:
        found = Tenant.objects.filter(public_id=tenant).first()
        if found is None:
            raise CommandError(f"there is no tenant {tenant}")
        try:
            ledger.grant(found, key, money.read(amount), reason, by, timezone.now())
        except (ValueError, Invalid) as error:
            raise CommandError(str(error)) from None
        found.account.refresh_from_db()
        self.stdout.write(f"{found} has {money.shown(found.account.balance_micros)}")
