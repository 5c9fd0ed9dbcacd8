from __future__ import annotations

from django.urls import include, path, re_path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from portal.accounts import api as accounts
from portal.api import errors, views
from portal.api.reference_views import docs
from portal.billing import api as billing
from portal.datasets.api import Datasets
from portal.jobs import api as jobs
from portal.jobs.retention_api import Retention
from portal.notices import api as notices
from portal.rewards.api import RewardRuns, Rewards
from portal.rewards.probe_api import Probes

router = SimpleRouter()
router.register("datasets", Datasets, basename="dataset")
router.register("rewards", Rewards, basename="reward")
router.register("reward-runs", RewardRuns, basename="reward-run")
router.register("probes", Probes, basename="probe")
router.register("jobs", views.Jobs, basename="job")
router.register("members", accounts.Members, basename="member")
router.register("invitations", accounts.Invitations, basename="invitation")
router.register("tokens", accounts.Tokens, basename="token")
router.register("audit", accounts.Audit, basename="audit")
router.register("notifications", notices.Notifications, basename="notification")
router.register("webhooks", notices.Webhooks, basename="webhook")
router.register("deliveries", notices.Deliveries, basename="delivery")
router.register("billing/entries", billing.Entries, basename="billing-entry")
router.register("billing/invoices", billing.Invoices, basename="billing-invoice")

_CHECKPOINTS = r"^jobs/(?P<public_id>[a-z0-9_]{1,40})/checkpoints/"
_CHECKPOINT = rf"{_CHECKPOINTS}(?P<version>[0-9]{{1,7}})/"
v1 = [
    path("tokens/report/", accounts.LeakReport.as_view(), name="token-report"),  # before the router's tokens/<id>/
    path("organisation/", accounts.Organisation.as_view(), name="organisation"),
    path("organisation/export/", accounts.Export.as_view(), name="organisation-export"),
    path("organisation/retention/", Retention.as_view(), name="retention"),
    path("jobs/compare/", jobs.Compared.as_view(), name="jobs-compare"),  # before the router's jobs/<id>/
    path("notifications/read/", notices.Read.as_view(), name="notifications-read"),
    *router.urls,
    re_path(f"{_CHECKPOINTS}$", jobs.Checkpoints.as_view(), name="checkpoints"),
    re_path(f"{_CHECKPOINT}$", jobs.OneCheckpoint.as_view(), name="checkpoint"),
    re_path(f"{_CHECKPOINT}keep/$", jobs.Keep.as_view(), name="checkpoint-keep"),
    re_path(f"{_CHECKPOINT}release/$", jobs.Release.as_view(), name="checkpoint-release"),
    path("models/", views.Models.as_view(), name="models"),
    path("billing/", billing.Billing.as_view(), name="billing"),
    path("billing/checkout/", billing.Checkout.as_view(), name="billing-checkout"),
    path("billing/plan/", billing.PlanChange.as_view(), name="billing-plan"),
    path("billing/portal/", billing.CustomerPortal.as_view(), name="billing-portal"),
    path("billing/limits/", billing.Limits.as_view(), name="billing-limits"),
    path("usage/", billing.Usage.as_view(), name="usage"),
    path("prices/", billing.Prices.as_view(), name="prices"),
    path("me/", views.Me.as_view(), name="me"),
]
urlpatterns = [
    path("v1/", include((v1, "api"))),
    path("schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("docs/", docs, name="api-docs"),
    re_path("^", errors.not_found),
]
