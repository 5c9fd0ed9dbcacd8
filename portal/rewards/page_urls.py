from __future__ import annotations

from django.urls import path

from portal.rewards import views

app_name = "rewards"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", views.new, name="new"),
    path("<str:public_id>/", views.detail, name="detail"),
]
