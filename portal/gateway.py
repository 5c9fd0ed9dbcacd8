"""The only door to the engine. Every call has a deadline and ends in an answer, ``EngineDown`` or ``EngineRefused``."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from contextvars import copy_context
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from django.conf import settings
from structlog.contextvars import get_contextvars

from portal.env import MAIN_ENGINE

Answer = TypeVar("Answer")
CALL_SECONDS = 10.0
CONNECT_SECONDS = 2.0
WHATIF_SECONDS = 60.0
DOWNLOAD_SECONDS = 60.0  # between two chunks, not for the whole
LONG_POLL_SLACK_SECONDS = 10.0
TOKEN_SECONDS = 90.0  # until a chat has its place, and from one token to the next


class EngineDown(Exception):
    """The engine cannot be reached, did not answer in time, or is still starting: the same call may be made again."""


class EngineSlow(EngineDown):
    """The engine was reached, but its answer did not come in time."""


class EngineRefused(Exception):
    """The engine answered no. ``problems``: (field, message); ``status``: 404 unknown, 409 not now, 422 invalid."""

    def __init__(self, status: int, message: str, problems: list[tuple[str, str]] | None = None):
        self.status = status
        self.problems = problems or []
        super().__init__(message)


class Gateway:
    """Calls for synchronous code (web threads, Celery). ``transport`` is for tests."""

    def __init__(self, base_url: str, secret: str, transport: httpx.BaseTransport | None = None):
        self._options = _options(base_url, secret)
        self._client = httpx.Client(transport=transport, **self._options)

    def submit(self, job: str, body: dict[str, Any]) -> bool:
        """Whether the engine has just created it; False when it already had exactly this one."""
        return self._call("PUT", f"/jobs/{job}", json=body).get("created", False)

    def command(self, job: str, kind: str, reason: str = "") -> None:
        self._call("POST", f"/jobs/{job}/{kind}", json={"reason": reason} if reason else {})

    def delete(self, job: str) -> None:
        """Remove an ended job's versions and batches for good; raises ``EngineRefused`` (404 unknown, 409 still running)."""
        self._call("DELETE", f"/jobs/{job}")

    def models(self) -> list[dict[str, Any]]:
        return self._call("GET", "/models", timeout=CONNECT_SECONDS).get("models", [])

    def tokenizer(self, model: str) -> bytes:
        """The content of the model's tokenizer.json."""
        with _engine_errors():
            timeout = httpx.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS)
            response = self._client.get(f"/models/{quote(model, safe='/')}/tokenizer", timeout=timeout)
            _raise_for(response)
            return response.content

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/status")

    def estimate(self, spec: dict[str, Any]) -> dict[str, Any]:
        return self._call("POST", "/estimate", json=spec, timeout=CONNECT_SECONDS)

    # For operators

    def overview(self) -> dict[str, Any]:
        return self._call("GET", "/overview", timeout=CONNECT_SECONDS)

    def whatif(self, question: dict[str, Any]) -> dict[str, Any]:
        return self._call("POST", "/whatif", json=question, timeout=WHATIF_SECONDS)

    def set_admission(self, mode: str) -> str:
        """``open``, ``pause`` or ``drain``; the mode as it stands now."""
        return self._call("POST", f"/admission/{mode}").get("admission", "")

    def set_policy(self, changes: dict[str, Any]) -> dict[str, Any]:
        return self._call("PATCH", "/policy", json=changes)

    def reprioritise(self, job: str, priority: int) -> None:
        self._call("PATCH", f"/jobs/{job}", json={"priority": priority})

    def health(self) -> dict[str, Any]:
        """The engine's own words about its parts, also while it is not ready. Raises ``EngineDown`` only when nothing answers."""
        with _engine_errors():
            response = self._client.get("/healthz", timeout=CONNECT_SECONDS)
            return _json(response)

    def grade(self, order: dict[str, Any], *, seconds: float) -> dict[str, Any]:
        """Grade cases without a job: {"total", "results", "busy", "printed"}. ``seconds``: how long the engine may take by the order."""
        return self._call("POST", "/graders/run", json=order, timeout=seconds + CALL_SECONDS)

    def stop_grading(self, run: str) -> bool:
        """Let go of what is graded for this run just now; whether there was anything: its call is then answered with what is done."""
        return self._call("POST", f"/graders/runs/{run}/stop", timeout=CONNECT_SECONDS)["stopped"]

    def probe(self, probe: str, order: dict[str, Any]) -> dict[str, Any]:
        """Begin a probe: {"state", "done", "total", "error", "result"}; the same again answers how far it is."""
        return self._call("POST", "/probes", json={"probe": probe, **order})

    def probe_state(self, probe: str) -> dict[str, Any]:
        return self._call("GET", f"/probes/{probe}")

    def cancel_probe(self, probe: str) -> dict[str, Any]:
        return self._call("POST", f"/probes/{probe}/cancel")

    def rollouts(self, job: str, version: int, offset: int = 0, limit: int = 100) -> dict[str, Any]:
        return self._call("GET", f"/jobs/{job}/rollouts", params={"version": version, "offset": offset, "limit": limit})

    def delete_version(self, job: str, version: int) -> None:
        self._call("DELETE", f"/jobs/{job}/adapters/{version}")

    def delete_completions(self, job: str) -> None:
        self._call("DELETE", f"/jobs/{job}/completions")

    def groups(self, job: str, **wanted: Any) -> dict[str, Any]:
        """Groups of completions, see ``engine.groups``; what is None is not asked for."""
        return self._call("GET", f"/jobs/{job}/groups", params={name: value for name, value in wanted.items() if value not in (None, "")})

    def row_versions(self, job: str, row: int) -> list[int]:
        """The versions that a row of the dataset was sampled from, ascending."""
        return self._call("GET", f"/jobs/{job}/rows/{row}/versions").get("versions", [])

    def evaluation(
        self, job: str, version: str, *, against: int = 0, change: str = "", offset: int = 0, limit: int = 100
    ) -> dict[str, Any]:
        params = {"against": against, "offset": offset, "limit": limit, **({"change": change} if change else {})}
        return self._call("GET", f"/jobs/{job}/evaluations/{version}", params=params)

    @contextmanager
    def adapter(self, job: str, version: str) -> Iterator[httpx.Response]:
        """A streaming response; read it with ``iter_bytes``."""
        with _engine_errors(), self._client.stream("GET", f"/jobs/{job}/adapters/{version}", timeout=_download()) as response:
            if response.is_error:
                response.read()
            _raise_for(response)
            yield response

    def close(self) -> None:
        self._client.close()

    def _call(self, method: str, path: str, *, timeout: float = CALL_SECONDS, **arguments: Any) -> dict[str, Any]:
        with _engine_errors():
            response = self._client.request(method, path, timeout=httpx.Timeout(timeout, connect=CONNECT_SECONDS), **arguments)
            _raise_for(response)
            return _json(response)


class AsyncGateway:
    """What waits long and must be interruptible, as a thread is not: the ingester's long poll, and chats."""

    def __init__(self, base_url: str, secret: str, transport: httpx.AsyncBaseTransport | None = None):
        self._client = httpx.AsyncClient(transport=transport, **_options(base_url, secret))

    async def events(self, after: int, wait_seconds: float, limit: int) -> dict[str, Any]:
        """{"engine", "epoch", "events", "last"}; ``events`` is empty after ``wait_seconds`` in which nothing happened."""
        params = {"after": after, "wait": wait_seconds, "limit": limit}
        timeout = httpx.Timeout(wait_seconds + LONG_POLL_SLACK_SECONDS, connect=CONNECT_SECONDS)
        with _engine_errors():
            response = await self._client.get("/events", params=params, timeout=timeout)
            _raise_for(response)
            return _json(response)

    @asynccontextmanager
    async def generate(self, order: dict[str, Any]) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """The lines of a chat as they come (``engine.serving``); leaving the block ends it. The lines raise ``EngineDown`` too."""
        timeout = httpx.Timeout(TOKEN_SECONDS, connect=CONNECT_SECONDS)
        with _engine_errors():
            async with self._client.stream("POST", "/generate", json=order, timeout=timeout) as response:
                if response.is_error:
                    await response.aread()
                _raise_for(response)
                yield _lines(response)

    async def status(self) -> dict[str, Any]:
        with _engine_errors():
            response = await self._client.get("/status", timeout=httpx.Timeout(CALL_SECONDS, connect=CONNECT_SECONDS))
            _raise_for(response)
            return _json(response)

    async def health(self) -> dict[str, Any]:
        """As ``Gateway.health``."""
        with _engine_errors():
            return _json(await self._client.get("/healthz", timeout=CONNECT_SECONDS))

    async def close(self) -> None:
        await self._client.aclose()


async def _lines(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    with _engine_errors():
        async for line in response.aiter_lines():
            yield json.loads(line)


def _options(base_url: str, secret: str) -> dict[str, Any]:
    # trust_env would send the engine's secret through a proxy of the environment.
    # Loading the certificates takes 0.1 s, so plain HTTP goes without.
    return {"base_url": base_url, "auth": Named(secret), "trust_env": False, "verify": not base_url.startswith("http:")}


class Named(httpx.Auth):
    """The engine's secret, and the id of the request or task that the call is for: the engine's log lines carry it too."""

    def __init__(self, secret: str):
        self._bearer = f"Bearer {secret}"

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:
        request.headers["Authorization"] = self._bearer
        if known := get_contextvars().get("request_id"):
            request.headers["X-Request-Id"] = str(known)
        yield request


def _download() -> httpx.Timeout:
    return httpx.Timeout(DOWNLOAD_SECONDS, connect=CONNECT_SECONDS)


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except httpx.ReadTimeout as error:
        raise EngineSlow("the engine did not answer in time") from error
    except httpx.HTTPError as error:
        raise EngineDown(f"the engine cannot be reached: {type(error).__name__} {error}".strip()) from error


def _json(response: httpx.Response) -> dict[str, Any]:
    try:
        answer = response.json()
    except ValueError as error:
        raise EngineDown("the engine's answer is no JSON") from error
    if not isinstance(answer, dict):
        raise EngineDown("the engine's answer is no JSON object")
    return answer


def _raise_for(response: httpx.Response) -> None:
    if response.status_code < 400:
        return
    message, problems = _refusal(response)
    if response.status_code in (401, 403, 429) or response.status_code >= 500:
        raise EngineDown(f"the engine answered {response.status_code}: {message}")
    raise EngineRefused(response.status_code, message, problems)


def _refusal(response: httpx.Response) -> tuple[str, list[tuple[str, str]]]:
    try:
        error = response.json()["error"]
        return str(error["message"]), [(str(p["field"]), str(p["message"])) for p in error.get("problems") or []]
    except (ValueError, KeyError, TypeError):
        return response.text[:200] or f"status {response.status_code}", []


_open: dict[tuple[int, str], Gateway] = {}


def names() -> tuple[str, ...]:
    """The configured engines: "" is the one at MARLAAS_ENGINE_URL, the others are those of MARLAAS_ENGINES."""
    return ("", *settings.ENGINES)


def title(name: str) -> str:
    """What people, logs and metrics call it."""
    return name or MAIN_ENGINE


def url(name: str) -> str:
    """Raises ``EngineDown`` for an engine that is not configured, or no longer."""
    if name and name not in settings.ENGINES:
        raise EngineDown(f"the engine {name} is not configured any more; name it in MARLAAS_ENGINES")
    return settings.ENGINES[name] if name else settings.ENGINE_URL


def engine(name: str = "") -> Gateway:
    """This process's gateway to an engine; a forked child makes its own, since sockets must not be shared. Raises ``EngineDown``."""
    if (key := (os.getpid(), name)) not in _open:
        _open[key] = Gateway(url(name), settings.ENGINE_SECRET, getattr(settings, "ENGINE_TRANSPORT", None))
    return _open[key]


def of_each(ask: Callable[[str], Answer], engines: Iterable[str]) -> dict[str, Answer]:
    """``ask(name)`` of each at the same time: one that is away costs its own deadline, not the sum. ``ask`` keeps off the database."""
    asked = list(engines)
    if len(asked) < 2:
        return {name: ask(name) for name in asked}
    with ThreadPoolExecutor(len(asked)) as threads:
        answers = [threads.submit(copy_context().run, ask, name) for name in asked]
        return {name: answer.result() for name, answer in zip(asked, answers, strict=True)}


def async_engine(name: str = "") -> AsyncGateway:
    """A new one, for the caller to close: an asynchronous client belongs to one event loop. Raises ``EngineDown``."""
    return AsyncGateway(url(name), settings.ENGINE_SECRET, getattr(settings, "ENGINE_TRANSPORT", None))


def forget() -> None:
    """Drop what ``engine`` opened: settings have changed."""
    for gateway in _open.values():
        gateway.close()
    _open.clear()
