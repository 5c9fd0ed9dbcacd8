from __future__ import annotations

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class TenantsConfig(AppConfig):
    name = "tenants"
    verbose_name = "Accounts"

    def ready(self) -> None:
        from tenants import signals, walls

        signals.connect()
        # Once for all apps, after the last of them: the keys cross app borders.
        post_migrate.connect(walls.after_migrate, dispatch_uid="tenants.walls")
