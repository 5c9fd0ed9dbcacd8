from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone

from portal.billing import notices, reconcile, stripe_client
from portal.billing.stripe_records import Refused, Unreachable


class Command(BaseCommand):
    help = "What the nightly task does, now: fetch missed notices, compare with Stripe. Ends with status 1 when something differs."

    def handle(self, **_: Any) -> None:
        stripe, now = stripe_client.connect(), timezone.now()
        if stripe is None:
            raise CommandError("there is no key: set MARLAAS_STRIPE_KEY and MARLAAS_STRIPE_WEBHOOK_SECRET")
        try:
            missed = notices.backfill(stripe, now)
            notices.sweep(stripe, now)
            found = reconcile.compare(stripe, now)
        except (Unreachable, Refused) as error:
            raise CommandError(str(error)) from None
        for one in found:
            self.stderr.write(str(one))
        self.stdout.write(f"{missed} notices were missing, {len(found)} sums differ")
        if found:
            sys.exit(1)
