from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from portal.billing import catalogue, stripe_client
from portal.billing.stripe_records import Refused, Unreachable


class Command(BaseCommand):
    help = "Make the meters and the price of the overage at Stripe that are missing there. Run it once per Stripe account; twice is once."

    def handle(self, **_: Any) -> None:
        stripe = stripe_client.connect()
        if stripe is None:
            raise CommandError("there is no key: set MARLAAS_STRIPE_KEY and MARLAAS_STRIPE_WEBHOOK_SECRET")
        try:
            made = catalogue.set_up(stripe)
        except (Unreachable, Refused) as error:
            raise CommandError(str(error)) from None
        self.stdout.write("\n".join(f"made: {name}" for name in made) or "everything stands already")
