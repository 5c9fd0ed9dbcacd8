from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import httpx
import pytest
from structlog.contextvars import bound_contextvars

from portal.gateway import EngineDown, EngineRefused, Gateway


def gateway(handler: Callable[[httpx.Request], httpx.Response]) -> Gateway:
    return Gateway("http://engine", "s3cret", httpx.MockTransport(handler))


def answering(status: int, **content) -> Gateway:
    return gateway(lambda request: httpx.Response(status, **content))


def test_every_call_carries_the_secret_and_a_deadline() -> None:
    seen: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={})

    door = gateway(handler)
    for call in (door.status, door.models, lambda: door.submit("j", {}), lambda: door.command("j", "pause"), lambda: door.rollouts("j", 1)):
        call()
    assert {request.headers["Authorization"] for request in seen} == {"Bearer s3cret"}
    assert all(timeout for request in seen for timeout in request.extensions["timeout"].values())


def test_a_call_tells_the_engine_for_whose_request_it_is() -> None:
    seen: list[str | None] = []

    def handler(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("X-Request-Id"))
        return httpx.Response(200, json={})

    door = gateway(handler)
    with bound_contextvars(request_id="req_1"):
        door.status()
    door.status()
    assert seen == ["req_1", None]


@pytest.mark.parametrize("error", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError])
def test_an_engine_that_does_not_answer_is_down(error: type[httpx.TransportError]) -> None:
    def handler(request: httpx.Request) -> httpx.Response:
        raise error("gone", request=request)

    with pytest.raises(EngineDown):
        gateway(handler).status()


@pytest.mark.parametrize("status", [401, 403, 429, 500, 502, 503])
def test_what_may_pass_later_is_down(status: int) -> None:
    with pytest.raises(EngineDown):
        answering(status, text="oops").status()


@pytest.mark.parametrize("content", [{"text": "<html>"}, {"json": [1]}, {"content": b"\xff"}])
def test_an_answer_that_is_no_json_object_is_down(content: dict) -> None:
    with pytest.raises(EngineDown):
        answering(200, **content).status()


def test_a_refusal_carries_its_problems() -> None:
    error = {"message": "no", "problems": [{"field": "spec.lora.rank", "message": "at most 16"}]}
    with pytest.raises(EngineRefused) as refused:
        answering(422, json={"error": error}).submit("j", {})
    assert (refused.value.status, refused.value.problems) == (422, [("spec.lora.rank", "at most 16")])


@pytest.mark.parametrize("body", [{}, {"error": "no"}, {"error": {"message": "no", "problems": [{}]}}, []])
def test_a_refusal_in_another_shape_is_still_a_refusal(body: object) -> None:
    with pytest.raises(EngineRefused):
        answering(404, json=body).status()


def test_a_broken_download_is_down() -> None:
    with pytest.raises(EngineRefused), answering(404, json={}).adapter("j", "latest"):
        raise AssertionError("opened")


def test_a_proxy_of_the_environment_never_sees_the_secret(monkeypatch: pytest.MonkeyPatch, free_port: Callable[[], int]) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")

    class Engine(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"epoch": 1}')

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        server.timeout = 10
        thread = Thread(target=server.handle_request)
        thread.start()
        assert Gateway(f"http://127.0.0.1:{server.server_port}", "s3cret").status() == {"epoch": 1}
        thread.join(10)
