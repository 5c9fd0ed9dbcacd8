from __future__ import annotations

from django.urls import path

from portal.console import views

urlpatterns = [
    path("", views.index, name="index"),
    path("live/", views.live, name="live"),
    path("act/", views.act, name="act"),
    path("tenants/", views.tenant_list, name="tenants"),
    path("tenants/<str:public_id>/", views.tenant, name="tenant"),
    path("tenants/<str:public_id>/view/", views.view_as, name="view-as"),
    path("view/end/", views.view_end, name="view-end"),
    path("what-if/", views.what_if, name="what-if"),
    path("engines/", views.engine_list, name="engines"),
    path("audit/", views.audit, name="audit"),
]
