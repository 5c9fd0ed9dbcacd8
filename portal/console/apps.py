from __future__ import annotations

from typing import Any

import structlog
from django.apps import AppConfig
from django_structlog.signals import bind_extra_request_metadata


class ConsoleConfig(AppConfig):
    name = "portal.console"
    verbose_name = "Operators"

    def ready(self) -> None:
        bind_extra_request_metadata.connect(_name_tenant, dispatch_uid="portal.console.log_tenant")


def _name_tenant(request: Any, **_: Any) -> None:
    """Each log line of a request says whose it is."""
    if (tenant := getattr(request, "tenant", None)) is not None:
        structlog.contextvars.bind_contextvars(tenant=tenant.public_id)
