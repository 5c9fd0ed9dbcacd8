"""The web process: HTTP to Django, websockets to the consumers, and only from our own pages (cookies travel with any page's socket)."""

from __future__ import annotations

import gc
import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from channels.security.websocket import AllowedHostsOriginValidator
from django.core.asgi import get_asgi_application

from portal import tracing

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
tracing.start("web")
django_application = get_asgi_application()

from portal.console import viewing  # noqa: E402 - models need the set-up above
from portal.jobs.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter(
    {
        "http": django_application,
        "websocket": AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns(viewing.tenant_of)))),
    }
)

# What is loaded stays: no collection of garbage looks through all of it again while sockets wait.
gc.collect()
gc.freeze()
