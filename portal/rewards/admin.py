from __future__ import annotations

from django.contrib import admin

from portal.rewards.models import LabCase, LabRun, Reward, Sheet
from portal.rewards.probe_models import Probe
from tenants.records import ReadOnly


@admin.register(Reward)
class RewardAdmin(ReadOnly):
    list_display = ("name", "public_id", "tenant", "kind", "created_at")
    search_fields = ("name", "public_id", "tenant__name")
    list_select_related = ("tenant",)


@admin.register(Sheet)
class SheetAdmin(ReadOnly):
    list_display = ("public_id", "tenant", "reward", "created_by", "changed_at")
    search_fields = ("public_id", "tenant__name")
    list_select_related = ("tenant", "reward", "created_by")


@admin.register(LabRun)
class LabRunAdmin(ReadOnly):
    list_display = ("public_id", "tenant", "reward", "state", "done", "total", "created_at")
    search_fields = ("public_id", "tenant__name")
    list_select_related = ("tenant", "reward")


@admin.register(LabCase)
class LabCaseAdmin(ReadOnly):
    list_display = ("run", "number", "tenant")
    search_fields = ("run__public_id", "tenant__name")
    list_select_related = ("run", "tenant")


@admin.register(Probe)
class ProbeAdmin(ReadOnly):
    list_display = ("public_id", "tenant", "reward", "state", "done", "total", "created_at")
    search_fields = ("public_id", "tenant__name")
    list_select_related = ("tenant", "reward")
