from __future__ import annotations

from django.urls import path

from portal.billing import views

app_name = "billing"
urlpatterns = [
    path("usage/", views.index, name="usage"),
    path("usage/daily.csv", views.download, {"what": "daily"}, name="daily-csv"),
    path("usage/entries.csv", views.download, {"what": "entries"}, name="entries-csv"),
    path("jobs/<str:public_id>/cost/", views.job_cost, name="job-cost"),
    path("prices/", views.prices, name="prices"),
]
