from __future__ import annotations

from django.urls import path

from portal.tokens import views

app_name = "tokens"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", views.new, name="new"),
    path("<str:token_id>/rotate/", views.rotate, name="rotate"),
    path("<str:token_id>/revoke/", views.revoke, name="revoke"),
]
