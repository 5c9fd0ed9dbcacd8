"""Every path of the site. Pages, API, operators' records and third-party account pages each keep to their own prefix."""

from __future__ import annotations

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.urls import include, path

from portal import csp, health, metrics_web
from portal.billing import hooks
from portal.console.access import guard_records

admin.site.login = secure_admin_login(admin.site.login)  # one login for all, with its second factor and rate limits
guard_records(admin.site)  # before its paths are asked for below: they are wrapped as they are given out

handler500 = "portal.faults.server_error"

urlpatterns = [
    path("", include("portal.pages.page_urls")),
    path("datasets/", include(("portal.datasets.page_urls", "datasets"))),
    path("rewards/", include(("portal.rewards.page_urls", "rewards"))),
    path("", include(("portal.billing.page_urls", "billing"))),
    path("jobs/", include(("portal.jobs.page_urls", "jobs"))),
    path("notifications/", include(("portal.notices.page_urls", "notices"))),
    path("", include(("portal.accounts.page_urls", "accounts"))),
    path("settings/tokens/", include(("portal.tokens.page_urls", "tokens"))),
    path("accounts/", include("allauth.urls")),
    path("api/", include("portal.api.urls")),
    path("console/", include(("portal.console.page_urls", "console"))),
    path("v1/", include(("portal.openai.urls", "openai"))),
    path("playground/", include(("portal.playground.page_urls", "playground"))),
    path("admin/", admin.site.urls),
    path("stripe/webhook/", hooks.receive, name="stripe-webhook"),
    path("csp-report/", csp.report, name="csp-report"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics_web.scrape, name="metrics"),
]
