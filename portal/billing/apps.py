from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class BillingConfig(AppConfig):
    name = "portal.billing"

    def ready(self) -> None:
        from portal.billing import setup

        post_migrate.connect(setup.after_migrate, dispatch_uid="portal.billing.setup")
