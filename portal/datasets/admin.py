from __future__ import annotations

from django.contrib import admin

from portal.datasets.models import Dataset, Upload
from tenants.records import ReadOnly


@admin.register(Dataset)
class DatasetAdmin(ReadOnly):
    list_display = ("name", "public_id", "tenant", "train_rows", "eval_rows", "created_at")
    search_fields = ("name", "public_id", "tenant__name")
    list_select_related = ("tenant",)


@admin.register(Upload)
class UploadAdmin(ReadOnly):
    list_display = ("filename", "public_id", "tenant", "state", "bytes", "created_at")
    search_fields = ("filename", "public_id", "tenant__name")
    list_select_related = ("tenant",)
