from __future__ import annotations

from django.urls import path

from portal.jobs import checkpoint_views, compare_views, rollout_views, views

app_name = "jobs"
urlpatterns = [
    path("", views.index, name="list"),
    path("compare/", compare_views.index, name="compare"),
    path("bulk/", views.bulk, name="bulk"),
    path("new/", views.new, name="new"),
    path("<str:public_id>/", views.detail, name="detail"),
    path("<str:public_id>/events/", views.events, name="events"),
    path("<str:public_id>/overview/", views.overview, name="overview"),
    path("<str:public_id>/figures/", views.figures, name="figures"),
    path("<str:public_id>/rollouts/", rollout_views.index, name="rollouts"),
    path("<str:public_id>/rollouts/rows/<int:row>/", rollout_views.compare, name="rollout-diff"),
    path("<str:public_id>/rollouts/<int:version>/<int:row>/<int:sample>/", rollout_views.one, name="completion"),
    path("<str:public_id>/checkpoints/", checkpoint_views.index, name="checkpoints"),
    path("<str:public_id>/checkpoints/delete/", checkpoint_views.delete_all, name="delete-versions"),
    path("<str:public_id>/checkpoints/<int:version>/keep/", checkpoint_views.keep, name="keep"),
    path("<str:public_id>/checkpoints/<int:version>/delete/", checkpoint_views.delete, name="delete-version"),
    path("<str:public_id>/checkpoints/<int:version>/bundle/", checkpoint_views.reproduce, name="reproduce"),
    path("<str:public_id>/cancel/", views.cancel, name="cancel"),
    path("<str:public_id>/pause/", views.pause, name="pause"),
    path("<str:public_id>/resume/", views.resume, name="resume"),
    path("<str:public_id>/evaluation/<str:version>/", views.evaluation, name="evaluation"),
    path("<str:public_id>/adapter/<str:version>/", views.adapter, name="adapter"),
]
