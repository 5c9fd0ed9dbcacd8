from __future__ import annotations

from typing import Any

from allauth.mfa.models import Authenticator
from django.core.management.base import BaseCommand, CommandError

from engine.sealed import CannotOpen
from portal.accounts.factors import seal_anew


class Command(BaseCommand):
    help = "Seal the second factors of all people under the key of today, before an earlier MARLAAS_SECRET_KEY is taken out."

    def handle(self, **_: Any) -> None:
        try:
            count = seal_anew(Authenticator.objects.all())
        except CannotOpen:
            raise CommandError("One was sealed under a key that is not here. Put it into MARLAAS_SECRET_KEY_FALLBACKS.") from None
        self.stdout.write(f"{count} second factors are sealed under the key of today.")
