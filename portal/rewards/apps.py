from __future__ import annotations

from django.apps import AppConfig


class RewardsConfig(AppConfig):
    name = "portal.rewards"
