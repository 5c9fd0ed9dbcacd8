from __future__ import annotations

from django.urls import path

from portal.accounts import audit_views, views
from portal.jobs import retention_views

app_name = "accounts"
urlpatterns = [
    path("settings/", views.organisation, name="organisation"),
    path("settings/export/", views.export, name="export"),
    path("settings/leave/", views.leave, name="leave"),
    path("settings/delete/", views.delete, name="delete"),
    path("settings/members/", views.members, name="members"),
    path("settings/members/<str:member_id>/role/", views.role, name="role"),
    path("settings/members/<str:member_id>/remove/", views.remove, name="remove"),
    path("settings/members/<str:member_id>/owner/", views.transfer, name="transfer"),
    path("settings/invitations/<str:invitation_id>/withdraw/", views.withdraw, name="withdraw"),
    path("settings/retention/", retention_views.index, name="retention"),
    path("settings/audit/", audit_views.index, name="audit"),
    path("settings/audit.csv", audit_views.download, name="audit-csv"),
    path("settings/sessions/<int:session>/end/", views.end_session, name="end-session"),
    path("organisations/new/", views.new, name="new"),
    path("join/<str:invitation_id>/<str:secret>/", views.join, name="join"),
]
