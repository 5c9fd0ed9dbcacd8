from __future__ import annotations

from django.urls import path

from portal.jobs import rollout_views, views

app_name = "jobs"
urlpatterns = [
    path("", views.index, name="list"),
    path("new/", views.new, name="new"),
    path("<str:public_id>/", views.detail, name="detail"),
    path("<str:public_id>/events/", views.events, name="events"),
    path("<str:public_id>/overview/", views.overview, name="overview"),
    path("<str:public_id>/figures/", views.figures, name="figures"),
    path("<str:public_id>/rollouts/", rollout_views.index, name="rollouts"),
    path("<str:public_id>/rollouts/rows/<int:row>/", rollout_views.compare, name="rollout-diff"),
    path("<str:public_id>/rollouts/<int:version>/<int:row>/<int:sample>/", rollout_views.one, name="completion"),
    path("<str:public_id>/cancel/", views.cancel, name="cancel"),
    path("<str:public_id>/pause/", views.pause, name="pause"),
    path("<str:public_id>/resume/", views.resume, name="resume"),
    path("<str:public_id>/evaluation/<str:version>/", views.evaluation, name="evaluation"),
    path("<str:public_id>/adapter/<str:version>/", views.adapter, name="adapter"),
]
