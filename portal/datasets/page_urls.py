from __future__ import annotations

from django.urls import path

from portal.datasets import upload_views, views

app_name = "datasets"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", upload_views.new, name="new"),
    path("generate/", upload_views.generate, name="generate"),
    path("import/", upload_views.from_hub, name="import"),
    path("uploads/<str:upload_id>/", upload_views.upload, name="upload"),
    path("uploads/<str:upload_id>/status/", upload_views.status, name="upload-status"),
    path("uploads/<str:upload_id>/discard/", upload_views.discard, name="upload-discard"),
    path("uploads/<str:upload_id>/report.json", upload_views.report, {"kind": "json"}, name="upload-report-json"),
    path("uploads/<str:upload_id>/report.csv", upload_views.report, {"kind": "csv"}, name="upload-report-csv"),
    path("<str:public_id>/", views.detail, name="detail"),
    path("<str:public_id>/lengths/", views.lengths, name="lengths"),
    path("<str:public_id>/delete/", views.delete, name="delete"),
    path("<str:public_id>/report.json", views.report, {"kind": "json"}, name="report-json"),
    path("<str:public_id>/report.csv", views.report, {"kind": "csv"}, name="report-csv"),
]
