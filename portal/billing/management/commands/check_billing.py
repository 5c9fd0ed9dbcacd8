from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand

from portal.billing import ledger
from portal.billing.models import Account


class Command(BaseCommand):
    help = "Whether every balance is the sum of its entries, to the micro-unit. Ends with status 1 when one is not."

    def handle(self, **_: Any) -> None:
        unsound = 0
        accounts = Account.objects.select_related("tenant").order_by("pk")
        for account in accounts:
            found = ledger.audit(account.tenant)
            if not found.sound:
                unsound += 1
                self.stderr.write(f"{account.tenant.public_id}: {found}")
        self.stdout.write(f"{accounts.count()} accounts, {unsound} unsound")
        if unsound:
            sys.exit(1)
