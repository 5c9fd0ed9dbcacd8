from __future__ import annotations

from django.contrib import admin

from portal.rewards.models import Reward
from tenants.records import ReadOnly


@admin.register(Reward)
class RewardAdmin(ReadOnly):
    list_display = ("name", "public_id", "tenant", "kind", "created_at")
    search_fields = ("name", "public_id", "tenant__name")
    list_select_related = ("tenant",)
