from __future__ import annotations

from django.urls import path

from portal.pages import search, views

urlpatterns = [
    path("", views.home, name="home"),
    path("search/", search.search, name="search"),
    path("gallery/", views.gallery, name="gallery"),
    path("sample/", views.sample, name="sample"),
    path("switch/<str:public_id>/", views.switch, name="switch"),
]
