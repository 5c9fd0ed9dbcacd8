from __future__ import annotations

from django.urls import path

from portal.notices import views

app_name = "notices"
urlpatterns = [
    path("", views.index, name="list"),
    path("mail/", views.mail, name="mail"),
    path("webhooks/", views.add, name="add-webhook"),
    path("webhooks/<str:public_id>/remove/", views.remove, name="remove-webhook"),
    path("deliveries/<int:delivery>/again/", views.again, name="again"),
]
