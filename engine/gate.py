"""The wall in front of the engine's HTTP door: the bearer secret, and a bound on what a request may send. Plain ASGI."""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from engine.errors import EngineError, TooLarge, Unauthorized

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = frozenset({"/healthz"})
METRICS_PATH = "/metrics"


class Gate:
    """Lets a request through to ``app`` when it knows ``secret`` (compared in constant time) and its body fits.

    ``metrics_token`` opens the figures and nothing else: whoever scrapes them should be able to do nothing. "": there is none.
    """

    def __init__(self, app: App, *, secret: str, max_body_bytes: int, metrics_token: str = ""):
        if not secret:
            raise ValueError("the engine's secret is empty")
        self._app = app
        self._expected = f"Bearer {secret}".encode()
        self._scrapes = f"Bearer {metrics_token}".encode() if metrics_token else self._expected
        self._max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif not self._knows_secret(scope):
            await refuse(send, Unauthorized("send the engine's secret as `Authorization: Bearer …`"))
        elif (body := await self._body(receive)) is None:
            await refuse(send, TooLarge(f"a request may have at most {self._max_body_bytes} bytes"))
        else:
            await self._app(scope, _replayed(body, receive), send)

    def _knows_secret(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        scrapes = scope["path"] == METRICS_PATH and secrets.compare_digest(given, self._scrapes)
        return scrapes or scope["path"] in OPEN_PATHS or secrets.compare_digest(given, self._expected)

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body, or None when it is too long. Requests are small; answers stream past this wall untouched."""
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if len(body) > self._max_body_bytes:
                return None
            if not message.get("more_body", False):
                return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that hands out ``body`` first, then whatever the client does next (it can only leave)."""
    pending = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> dict[str, Any]:
        return pending.pop() if pending else await receive()

    return replay


async def refuse(send: Send, error: EngineError) -> None:
    content = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
