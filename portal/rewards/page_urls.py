from __future__ import annotations

from django.urls import path

from portal.rewards import probe_views, views

app_name = "rewards"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", views.new, name="new"),
    path("<str:public_id>/", views.detail, name="detail"),
    path("<str:public_id>/probe/", probe_views.probe, name="probe"),
    path("probes/<str:probe_id>/", probe_views.state, name="probe_state"),
    path("probes/<str:probe_id>/cancel/", probe_views.cancel, name="probe_cancel"),
]
