from __future__ import annotations

from django.urls import path

from portal.rewards import lab_views, probe_views, views

app_name = "rewards"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", views.new, name="new"),
    path("drafts/<str:sheet_id>/", lab_views.draft, name="draft"),
    path("drafts/<str:sheet_id>/discard/", lab_views.discard, name="draft-discard"),
    path("runs/<str:run_id>/", lab_views.run, name="run"),
    path("runs/<str:run_id>/stop/", lab_views.stop, name="run-stop"),
    path("<str:public_id>/", views.detail, name="detail"),
    path("<str:public_id>/probe/", probe_views.probe, name="probe"),
    path("probes/<str:probe_id>/", probe_views.state, name="probe_state"),
    path("probes/<str:probe_id>/cancel/", probe_views.cancel, name="probe_cancel"),
    path("<str:public_id>/lab/", lab_views.stored, name="lab"),
    path("<str:public_id>/delete/", views.delete, name="delete"),
    path("<str:public_id>/copy/", lab_views.copy, name="copy"),
]
