from __future__ import annotations

from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    name = "portal.console"
    verbose_name = "Operators"
