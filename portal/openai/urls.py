from __future__ import annotations

from django.urls import path, re_path

from portal.openai import errors
from portal.openai.chat_views import ChatCompletions
from portal.openai.files import Content, File, Files
from portal.openai.graders import Run, Validate
from portal.openai.jobs import Checkpoints, Command, Events, FineTuningJob, FineTuningJobs
from portal.openai.models_views import Model, Models

urlpatterns = [
    path("models", Models.as_view(), name="models"),
    path("models/<path:model>", Model.as_view(), name="model"),
    path("chat/completions", ChatCompletions.as_view(), name="chat"),
    path("files", Files.as_view(), name="files"),
    path("files/<str:file_id>", File.as_view(), name="file"),
    path("files/<str:file_id>/content", Content.as_view(), name="file-content"),
    path("fine_tuning/jobs", FineTuningJobs.as_view(), name="jobs"),
    path("fine_tuning/jobs/<str:public_id>", FineTuningJob.as_view(), name="job"),
    path("fine_tuning/jobs/<str:public_id>/cancel", Command.as_view(kind="cancel"), name="cancel"),
    path("fine_tuning/jobs/<str:public_id>/pause", Command.as_view(kind="pause"), name="pause"),
    path("fine_tuning/jobs/<str:public_id>/resume", Command.as_view(kind="resume"), name="resume"),
    path("fine_tuning/jobs/<str:public_id>/events", Events.as_view(), name="events"),
    path("fine_tuning/jobs/<str:public_id>/checkpoints", Checkpoints.as_view(), name="checkpoints"),
    path("fine_tuning/alpha/graders/validate", Validate.as_view(), name="grader-validate"),
    path("fine_tuning/alpha/graders/run", Run.as_view(), name="grader-run"),
    re_path("", errors.not_found),
]
