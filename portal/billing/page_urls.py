from __future__ import annotations

from django.urls import path

from portal.billing import account_views, views

app_name = "billing"
urlpatterns = [
    path("billing/", account_views.index, name="account"),
    path("billing/credit/", account_views.credit, name="buy-credit"),
    path("billing/plan/", account_views.plan, name="buy-plan"),
    path("billing/portal/", account_views.portal, name="portal"),
    path("billing/limits/", account_views.spending, name="limits"),
    path("billing/estimate/", views.estimate, name="estimate"),
    path("usage/", views.index, name="usage"),
    path("usage/daily.csv", views.download, {"what": "daily"}, name="daily-csv"),
    path("usage/entries.csv", views.download, {"what": "entries"}, name="entries-csv"),
    path("jobs/<str:public_id>/cost/", views.job_cost, name="job-cost"),
    path("prices/", views.prices, name="prices"),
]
