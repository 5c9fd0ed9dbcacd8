from __future__ import annotations

from django.contrib import admin

from portal.jobs.models import Checkpoint, EngineCursor, EngineModel, Job, JobCommand, JobEvent, JobSubmission, Retention, StepChunk
from tenants.records import ReadOnly


@admin.register(Job)
class JobAdmin(ReadOnly):
    list_display = ("name", "public_id", "tenant", "state", "version", "last_seq", "submitted_at", "ended_at")
    list_filter = ("state",)
    search_fields = ("name", "public_id", "tenant__name")
    list_select_related = ("tenant",)


@admin.register(JobEvent)
class JobEventAdmin(ReadOnly):
    list_display = ("job", "seq", "kind", "at")
    list_filter = ("kind",)
    search_fields = ("job__public_id",)
    list_select_related = ("job",)


@admin.register(JobSubmission)
class JobSubmissionAdmin(ReadOnly):
    list_display = ("job", "created_at", "attempts", "answered_at", "last_error")
    search_fields = ("job__public_id",)
    list_select_related = ("job",)


@admin.register(JobCommand)
class JobCommandAdmin(ReadOnly):
    list_display = ("job", "kind", "requested_by", "requested_at", "attempts", "answered_at", "last_error")
    search_fields = ("job__public_id",)
    list_select_related = ("job", "requested_by")


@admin.register(EngineCursor)
class EngineCursorAdmin(ReadOnly):
    list_display = ("engine", "epoch", "offset", "current", "updated_at")


@admin.register(EngineModel)
class EngineModelAdmin(ReadOnly):
    list_display = ("name", "updated_at")


@admin.register(Checkpoint)
class CheckpointAdmin(ReadOnly):
    list_display = ("job", "version", "kept_by", "kept_at")
    search_fields = ("job__public_id",)
    list_select_related = ("job", "kept_by")


@admin.register(StepChunk)
class StepChunkAdmin(ReadOnly):
    list_display = ("job", "__str__")
    search_fields = ("job__public_id",)
    list_select_related = ("job",)


@admin.register(Retention)
class RetentionAdmin(ReadOnly):
    list_display = ("tenant", "completions_days", "versions_days", "changed_at")
    search_fields = ("tenant__name", "tenant__public_id")
    list_select_related = ("tenant",)
