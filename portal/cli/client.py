"""Calls to the API. Each ends in an answer or in ``Failed``, whose ``exit_code`` says to a script what kind of failure it was."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from portal.cli.config import Config

SECONDS = 60.0
SILENCE_SECONDS = 60.0  # a stream says every 15 seconds that it is there
MAX_RECONNECTS = 10
REFUSED, WRONG_USAGE, NOT_ALLOWED, NOT_THERE, UNREACHABLE = 1, 2, 3, 4, 5


class Failed(Exception):
    def __init__(self, message: str, exit_code: int, problems: list[dict[str, Any]] | None = None):
        self.exit_code = exit_code
        self.problems = problems or []
        super().__init__(message)


class Client:
    """``transport`` is for tests."""

    def __init__(self, config: Config, transport: httpx.BaseTransport | None = None):
        if not config.token:
            raise Failed("You are not signed in. Run: marl login", NOT_ALLOWED)
        headers = {"Authorization": f"Bearer {config.token}"}
        self._http = httpx.Client(base_url=f"{config.url}/api/v1", headers=headers, timeout=SECONDS, transport=transport)

    def get(self, path: str, **params: Any) -> Any:
        return self._call("GET", path, params={name: value for name, value in params.items() if value is not None})

    def post(self, path: str, **content: Any) -> Any:
        """Sent once, whatever the line does: the key makes a second try the same request."""
        return self._call("POST", path, headers={"Idempotency-Key": str(uuid.uuid4())}, **content)

    def patch(self, path: str, **content: Any) -> Any:
        return self._call("PATCH", path, **content)

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def pages(self, path: str, limit: int) -> list[dict[str, Any]]:
        """The newest ``limit`` rows of a list."""
        rows: list[dict[str, Any]] = []
        answer = self.get(path, limit=min(limit, 200))
        while True:
            rows += answer["results"]
            if len(rows) >= limit or not answer["next"]:
                return rows[:limit]
            answer = self._call("GET", answer["next"])

    def events(self, job: str, after: int = 0) -> Iterator[dict[str, Any]]:
        """Each event once, from now to the job's end; a broken line is taken up where it broke."""
        failures = 0
        while True:
            try:
                for event in self._stream(job, after):
                    failures, after = 0, event["seq"]
                    yield event
                    if event["kind"] == "ended":
                        return
                return
            except httpx.TransportError as error:
                failures += 1
                if failures > MAX_RECONNECTS:
                    raise Failed(f"The line to the site broke {failures} times: {error}", UNREACHABLE) from error

    def download(self, path: str, place: Path, progress: Callable[[int, int | None], None]) -> int:
        """Written beside ``place`` first: what lies there is whole. Returns the bytes."""
        staged = place.with_name(f".{place.name}.part")
        done = 0
        try:
            with self._http.stream("GET", path) as answer:
                self._raise_for(answer)
                total = int(answer.headers["Content-Length"]) if "Content-Length" in answer.headers else None
                with staged.open("wb") as file:
                    for chunk in answer.iter_bytes():
                        file.write(chunk)
                        done += len(chunk)
                        progress(done, total)
            staged.replace(place)
        except httpx.TransportError as error:
            staged.unlink(missing_ok=True)
            raise Failed(f"The download broke off: {error}", UNREACHABLE) from error
        except OSError as error:
            with contextlib.suppress(OSError):  # where nothing can be written, nothing may be removable either
                staged.unlink(missing_ok=True)
            raise Failed(f"{place} cannot be written: {error.strerror}. Name another file with -o.", WRONG_USAGE) from error
        return done

    def _stream(self, job: str, after: int) -> Iterator[dict[str, Any]]:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        timeout = httpx.Timeout(SECONDS, read=SILENCE_SECONDS)
        with self._http.stream("GET", f"/jobs/{job}/events/stream/", headers=headers, timeout=timeout) as answer:
            self._raise_for(answer)
            name = ""
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    if name == "closed":
                        raise Failed("Your right to watch this job has ended.", NOT_ALLOWED)
                    yield json.loads(line.removeprefix("data: "))

    def _call(self, method: str, path: str, **content: Any) -> Any:
        try:
            answer = self._http.request(method, path, **content)
        except httpx.TransportError as error:
            raise Failed(f"{self._http.base_url.netloc.decode()} does not answer: {error}", UNREACHABLE) from error
        self._raise_for(answer)
        return answer.json() if answer.content else None

    def _raise_for(self, answer: httpx.Response) -> None:
        if answer.status_code < 400:
            return
        answer.read()
        code = {401: NOT_ALLOWED, 403: NOT_ALLOWED, 404: NOT_THERE}.get(answer.status_code, REFUSED)
        try:
            error = answer.json()["error"]
        except (ValueError, KeyError, TypeError):
            raise Failed(f"The site answered {answer.status_code}.", UNREACHABLE if answer.status_code >= 500 else code) from None
        raise Failed(error["message"], UNREACHABLE if answer.status_code >= 500 else code, error.get("problems"))
