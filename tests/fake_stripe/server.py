"""The fake as a server on a port of its own. Its faults are asked for by name, one per request, and never wait for time to pass."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from stripe import WebhookSignature

from tests.fake_stripe import forms
from tests.fake_stripe.api import Api
from tests.fake_stripe.state import Refusal, State

# drop: the connection closes before anything was done; lost: after it was done; late: it is done after the next request.
FAULTS = ("drop", "lost", "late", "500", "500 done", "429")
Answer = tuple[int, dict[str, Any]]


class FakeStripe(State):
    """``calls``: (method, path) of what was asked. ``fault``: the name of the next request's fault, or None."""

    key = "sk_test_fake"
    secret = "whsec_fake"

    def __init__(self, clock: Callable[[], datetime]):
        super().__init__(clock)
        self.api = Api(self)
        self.calls: list[tuple[str, str]] = []
        self.down = False
        self.faults: deque[str] = deque()
        self.fault: Callable[[], str | None] = lambda: self.faults.popleft() if self.faults else None
        self._lock = threading.Lock()
        self._answered: dict[str, tuple[Any, Answer, int]] = {}
        self._late: list[tuple[str, str, dict[str, Any]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def misbehave(self, *faults: str) -> None:
        """Each of the next requests meets one of ``faults``."""
        assert set(faults) <= set(FAULTS), faults
        self.faults.extend(faults)

    # --- notices ----------------------------------------------------------------------------------------------------------------

    def sign(self, event: dict[str, Any], *, secret: str | None = None, at: int | None = None) -> tuple[str, str]:
        """A notice's body and its ``Stripe-Signature``."""
        body = json.dumps(event)
        return body, WebhookSignature.generate_signature_header(body, secret or self.secret, at or self.now)

    def take(self) -> list[dict[str, Any]]:
        """The events that no notice was given of yet, in their order."""
        taken, self.outgoing = self.outgoing, []
        return taken

    # --- requests ---------------------------------------------------------------------------------------------------------------

    def handle(self, method: str, path: str, values: dict[str, Any], key: str, idempotency_key: str | None) -> Answer | None:
        """Status and body; None: the connection just closes."""
        with self._lock:
            self.calls.append((method, path))
            fault = "drop" if self.down else self.fault()
            if key != f"Bearer {self.key}":
                return _error(Refusal(401, "Invalid API Key provided", kind="authentication_error"))
            late, self._late = self._late, []
            answer = self._obey(fault, method, path, values, idempotency_key)
            for request in late:
                self._do(*request, None)
            return answer

    def _obey(self, fault: str | None, method: str, path: str, values: dict[str, Any], key: str | None) -> Answer | None:
        broken = _error(Refusal(500, "An error occurred at Stripe", kind="api_error"))
        if fault == "drop":
            return None
        if fault == "429":
            return _error(Refusal(429, "Too many requests", "rate_limit", "rate_limit_error"))
        if fault == "late":
            self._late.append((method, path, values))
            return None
        if fault == "500":
            return self._remember(key, path, values, broken)
        answer = self._do(method, path, values, key)
        if fault == "500 done":
            return self._remember(key, path, values, broken)
        return None if fault == "lost" else answer

    def _do(self, method: str, path: str, values: dict[str, Any], key: str | None) -> Answer:
        if key in self._answered:
            asked, answer, since = self._answered[key]
            if self.now - since <= 86400:
                other = Refusal(400, "Keys for idempotent requests can only be used with the same parameters", kind="idempotency_error")
                return answer if asked == (path, values) else _error(other)
        try:
            answer = (200, self.api.answer(method, path, json.loads(json.dumps(values))))
        except Refusal as refusal:
            return _error(refusal)  # a request that was not begun is not remembered
        return self._remember(key, path, values, answer)

    def _remember(self, key: str | None, path: str, values: dict[str, Any], answer: Answer) -> Answer:
        """The answer under a key for 24 hours, errors of Stripe's own too."""
        if key:
            self._answered[key] = ((path, values), json.loads(json.dumps(answer)), self.now)
        return answer


def _error(refusal: Refusal) -> Answer:
    return refusal.status, {"error": {"type": refusal.kind, "message": str(refusal), "code": refusal.code or None}}


def _handler(fake: FakeStripe) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(forms.read(urlsplit(self.path).query))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            self._answer(forms.read(body))

        def _answer(self, values: dict[str, Any]) -> None:
            key, once = self.headers.get("Authorization", ""), self.headers.get("Idempotency-Key")
            answer = fake.handle(self.command, urlsplit(self.path).path, values, key, once)
            if answer is None:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            status, body = answer[0], json.dumps(answer[1]).encode()
            self.send_response(status)
            for name, value in (("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Request-Id", "req_1")):
                self.send_header(name, value)
            if status == 429:
                self.send_header("Retry-After", "30")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
