from __future__ import annotations

from django.urls import path

from portal.playground import views

urlpatterns = [
    path("", views.index, name="index"),
    path("<str:public_id>/", views.job, name="job"),
    path("<str:public_id>/row/", views.row, name="row"),
    path("<str:public_id>/grade/", views.grade, name="grade"),
]
