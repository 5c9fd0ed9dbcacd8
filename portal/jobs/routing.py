from __future__ import annotations

from django.urls import re_path

from portal.jobs.consumers import JobConsumer, Nothing

websocket_urlpatterns = [
    re_path(r"^ws/jobs/(?P<public_id>[a-z0-9_]{1,40})/$", JobConsumer.as_asgi()),
    re_path(r"", Nothing.as_asgi()),  # the last: a path that none has is an error to the router
]
