from __future__ import annotations

from django.urls import URLPattern, re_path

from portal.jobs.consumers import JobConsumer, Nothing, Viewed


def websocket_urlpatterns(viewed: Viewed) -> list[URLPattern]:
    """``viewed``: which organisation an operator looks at, beside those that he is a member of."""
    return [
        re_path(r"^ws/jobs/(?P<public_id>[a-z0-9_]{1,40})/$", JobConsumer.as_asgi(viewed=viewed)),
        re_path(r"", Nothing.as_asgi()),  # the last: a path that none has is an error to the router
    ]
