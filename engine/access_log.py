"""A log line for each request that changes a job or the engine: what was asked, for whose request, how it was answered. Plain ASGI."""

from __future__ import annotations

import logging
import re
from typing import Any

from engine import logs
from engine.gate import App, Receive, Scope, Send

logger = logging.getLogger(__name__)

REQUEST_ID = b"x-request-id"
_CHANGES = re.compile(r"(PUT|PATCH|DELETE) .*|POST /(jobs|admission)/.*")  # the other POSTs, of which there are many, only ask
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_A_JOB = re.compile(r"/jobs/([A-Za-z0-9_-]{1,64})(?:/|$)")


class AccessLog:
    """Behind ``Gate``: what has no secret does not write here. Whatever is logged while it answers carries the request's id and job."""

    def __init__(self, app: App):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status = 500

        async def watched(message: dict[str, Any]) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        # As it was sent, since a decoded one may hold line breaks.
        path = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        job = _OF_A_JOB.match(path)
        with logs.about(request_id=_request_id(scope), job=job[1] if job else ""):
            try:
                await self._app(scope, receive, watched)
            finally:
                if _CHANGES.fullmatch(asked := f"{scope['method']} {path}"):
                    logger.info("%s: %d", asked, status)


def _request_id(scope: Scope) -> str:
    """The portal's, so that its lines and ours are found together; "" for none."""
    given = dict(scope["headers"]).get(REQUEST_ID, b"").decode("ascii", "replace")
    return given if _ID.fullmatch(given) else ""
