from __future__ import annotations

from django.apps import AppConfig
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, pre_migrate


class TenantsConfig(AppConfig):
    name = "tenants"
    verbose_name = "People and organisations"

    def ready(self) -> None:
        from tenants import signals, walls, walls_rows

        signals.connect()
        pre_migrate.connect(walls.before_migrate, dispatch_uid="tenants.walls")
        # Once for all apps, after the last of them: the keys cross app borders.
        post_migrate.connect(walls.after_migrate, dispatch_uid="tenants.walls")
        post_migrate.connect(walls_rows.after_migrate, dispatch_uid="tenants.walls_rows")
        connection_created.connect(walls_rows.watch, dispatch_uid="tenants.walls_rows")
