"""An engine for the portal's tests: the HTTP of the contract, answered from memory.

In process: ``FakeEngine().transport()`` for httpx. Stand-alone, for work on pages: ``python -m tests.portal.fake_engine --port 8801
[--secret S] [--speed 4]`` plays every submitted job by ``fake_script``.

Trials of rewards are graded by the engine's own Lab, in a thread; ``sandbox`` is what runs Python, ``judges`` who judges, by
default nothing.

What it does not cover: no file or blob is read (so no row too long for the prompt is refused), nothing is sampled, trained, scheduled
fairly or journaled to disk, ``/metrics`` is missing, and in process nothing happens by itself: a test
writes each event.
"""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import re
import uuid
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from engine.errors import EngineError
from engine.rewards.lab import Lab, LabOrder
from engine.rewards.pool import GraderPool
from engine.spec import ModelInfo, SpecError, check_against, kv_bytes, parse_job, parse_submission
from engine.whatif import Question, answer
from tests.portal import fake_groups, fake_overview, fake_script
from tests.portal.fake_probes import FakeProbes

TINY = ModelInfo(
    name="tiny-math",
    max_context_tokens=128,
    max_rank=16,
    target_modules=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    kv_bytes_per_token=4096,
    kv_budget_bytes=1 << 30,
    job_slots=8,
    description="A small model that does sums",
)
TOKENIZER = Path(__file__).resolve().parents[2] / "engine" / "models" / "tiny_math" / "tokenizer.json"
_ENDED = ("succeeded", "failed", "cancelled")
_T0 = datetime(2026, 1, 1, tzinfo=UTC)


class FakeEngine:
    """``journal`` is the whole truth; ``calls`` is what was asked. ``down``: every call fails as if nothing listened.

    ``slow``: so many calls more get no answer in time.
    """

    def __init__(self, *, secret: str = "test-secret", clock: Callable[[], datetime] | None = None):
        self.secret = secret
        self.engine = uuid.uuid4().hex
        self.epoch = 1
        self.began: tuple[int, dict[str, int]] = (0, {})
        self.down = False
        self.slow = 0
        self.models = [TINY]
        self.journal: list[dict[str, Any]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.objections: list[dict[str, str]] = []
        self.calls: list[tuple[str, str]] = []
        self.deleted: set[str] = set()
        self.orders: list[dict[str, Any]] = []
        self.sandbox: Any = None
        self.judges: dict[str, Any] = {}
        self.lab_clock: Callable[[], float] | None = None
        self.lab: Lab | None = None  # while it grades
        self.meanwhile: Callable[[], None] | None = None  # happens while it grades
        self.probes = FakeProbes()
        self.admission = "open"
        self.policy = dataclasses.asdict(fake_overview.POLICY)
        self.priorities: dict[str, int] = {}
        self.overrides: dict[str, Any] = {}  # of the overview
        self.stage = ""  # what it is still doing before it is ready
        self.stopped: dict[str, str] | None = None  # {part: since when} of which none serves, while it answers
        self.chats: list[dict[str, Any]] = []
        self.says: Callable[[dict[str, Any]], str] = fake_script.said
        self.chat_refusal: tuple[int, str] | None = None
        self.chat_hold: asyncio.Event | None = None
        self.chat_breaks = False
        self._seqs: Counter[tuple[str, str]] = Counter()
        self._clock = clock or self._next_second

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self.handle)

    def emit(self, job: str, kind: str, **data: Any) -> dict[str, Any]:
        """Append an event of ``job``, numbered as the real journal numbers it."""
        self._seqs[self.engine, job] += 1
        seq = self._seqs[self.engine, job]
        event = {"schema_version": 1, "engine": self.engine, "epoch": self.epoch, "offset": len(self.journal) + 1, "job": job, "seq": seq}
        event |= {"kind": kind, "at": self._clock().isoformat(), "data": data}
        self.journal.append(event)
        return event

    def restart(self, *, lose: int = 0) -> None:
        """The next epoch begins; ``lose``: without the last so many events, as from a backup."""
        self.journal = self.journal[: len(self.journal) - lose]
        self._seqs = Counter((self.engine, event["job"]) for event in self.journal)
        self.began = (len(self.journal), {job: seq for (_, job), seq in self._seqs.items()})
        accepted = {event["job"] for event in self.journal if event["kind"] == "accepted"}
        self.jobs = {job: body for job, body in self.jobs.items() if job in accepted}
        self.epoch += 1

    def ended(self, job: str) -> bool:
        return any(e["kind"] == "ended" for e in self.journal if e["job"] == job)

    def handle(self, request: httpx.Request) -> httpx.Response:
        self.calls.append((request.method, request.url.path))
        if self.down:
            raise httpx.ConnectError("connection refused", request=request)
        if self.slow:
            self.slow -= 1
            raise httpx.ReadTimeout("timed out", request=request)
        if request.url.path == "/healthz":
            return self._health()
        if request.headers.get("Authorization") != f"Bearer {self.secret}":
            return _error(401, "wrong secret")
        for method, pattern, name in _ROUTES:
            if method == request.method and (match := re.fullmatch(pattern, request.url.path)):
                return getattr(self, name)(request, *match.groups())
        return _error(404, f"no such path {request.url.path}")

    def _health(self) -> httpx.Response:
        if self.stage or self.stopped is not None:
            told = {} if self.stopped is None else {"stopped": self.stopped}
            return httpx.Response(503, json={"ok": False, "stage": self.stage, **told})
        return httpx.Response(200, json={"ok": True, "epoch": self.epoch})

    def _submit(self, request: httpx.Request, job: str) -> httpx.Response:
        body = json.loads(request.content)
        try:
            submission = parse_submission(body)
            self._check(submission.spec)
        except SpecError as error:
            return _error(422, str(error), error.problems)
        if (known := self.jobs.get(job)) is not None:
            return httpx.Response(200, json={"job": job, "created": False}) if known == body else _error(409, "this job has another body")
        self.jobs[job] = body
        self.emit(job, "accepted", submission=body, kv_bytes=kv_bytes(submission.spec, TINY.kv_bytes_per_token))
        return httpx.Response(200, json={"job": job, "created": True})

    def _check(self, spec: Any) -> None:
        known = {model.name: model for model in self.models}
        if spec.base_model not in known:
            raise SpecError([("spec.base_model", f"unknown model {spec.base_model}")])
        check_against(spec, known[spec.base_model])

    def _command(self, request: httpx.Request, job: str, kind: str) -> httpx.Response:
        if job not in self.jobs:
            return _error(404, "no such job")
        if self.ended(job):
            return _error(409, "the job has ended")
        reason = json.loads(request.content or b"{}").get("reason", "")
        if kind == "cancel":
            self.emit(job, "stop_requested", outcome="cancelled", reason=reason, attribution="user")
        else:
            self.emit(job, {"pause": "pause_requested", "resume": "resumed"}[kind])
        return httpx.Response(202, json={"job": job})

    def _delete(self, request: httpx.Request, job: str) -> httpx.Response:
        if job not in self.jobs:
            return _error(404, "no such job")
        if not self.ended(job):
            return _error(409, "the job has not ended; cancel it first")
        if job not in self.deleted:
            self.deleted.add(job)
            self.emit(job, "deleted")
        return httpx.Response(200, json={"job": job})

    def _events(self, request: httpx.Request) -> httpx.Response:
        after, limit = int(request.url.params["after"]), int(request.url.params.get("limit", 1000))
        page = self.journal[after : after + limit]
        return httpx.Response(200, json={"engine": self.engine, "epoch": self.epoch, "events": page, "last": len(self.journal)})

    def _models(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"models": [model.model_dump(mode="json") for model in self.models]})

    def _tokenizer(self, request: httpx.Request, model: str) -> httpx.Response:
        if model not in {info.name for info in self.models}:
            return _error(404, f"unknown model {model}")
        return httpx.Response(200, content=TOKENIZER.read_bytes())

    def _status(self, request: httpx.Request) -> httpx.Response:
        accepted = dict.fromkeys(event["job"] for event in self.journal if event["kind"] == "accepted")
        jobs = [self._line(job) for job in {**accepted, **dict.fromkeys(self.jobs)}]
        journal = {"last": len(self.journal), "began": self.began[0]}
        answer = {"engine": self.engine, "epoch": self.epoch, "journal": journal, "admission": "open", "jobs": jobs}
        return httpx.Response(200, json=answer)

    def _line(self, job: str) -> dict[str, Any]:
        ended = [event["data"].get("state", "failed") for event in self.journal if (event["job"], event["kind"]) == (job, "ended")]
        tenant = self.jobs.get(job, {}).get("tenant", "")
        began = self.began[1].get(job, 0)
        return {"job": job, "tenant": tenant, "state": (ended or ["queued"])[0], "version": 0, "began_seq": began}

    def _overview(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={**fake_overview.overview(self), **self.overrides})

    def _whatif(self, request: httpx.Request) -> httpx.Response:
        """The engine's own simulator, on the fake's overview."""
        try:
            return httpx.Response(200, json=answer(Question(**json.loads(request.content)), fake_overview.overview(self)))
        except EngineError as error:
            return httpx.Response(error.status, json=error.body())

    def _admission(self, request: httpx.Request, mode: str) -> httpx.Response:
        self.admission = {"open": "open", "pause": "paused", "drain": "drain"}[mode]
        return httpx.Response(200, json={"admission": self.admission})

    def _policy(self, request: httpx.Request) -> httpx.Response:
        try:
            changed = fake_overview.POLICY.changed(json.loads(request.content))
        except (TypeError, ValueError) as error:
            return _error(422, str(error), [("policy", str(error))])
        self.policy = dataclasses.asdict(changed)
        return httpx.Response(200, json=self.policy)

    def _priority(self, request: httpx.Request, job: str) -> httpx.Response:
        if job not in self.jobs:
            return _error(404, "no such job")
        self.priorities[job] = json.loads(request.content)["priority"]
        return httpx.Response(200, json={"job": job, "priority": self.priorities[job]})

    def _estimate(self, request: httpx.Request) -> httpx.Response:
        try:
            spec = parse_job(json.loads(request.content))
        except SpecError as error:
            return _error(422, str(error), error.problems)
        needed = kv_bytes(spec, TINY.kv_bytes_per_token)
        budget = TINY.kv_budget_bytes
        answer = {"kv_bytes": needed, "budget_bytes": budget, "runs_alone": needed > budget, "problems": self.objections}
        return httpx.Response(200, json=answer)

    def _grade(self, request: httpx.Request) -> httpx.Response:
        order = json.loads(request.content)
        self.orders.append(order)
        more = {"clock": self.lab_clock} if self.lab_clock else {}
        self.lab = lab = Lab(lambda: GraderPool(sandbox=self.sandbox, judges=self.judges), idle_seconds=3600, **more)
        if self.meanwhile is not None:
            self.meanwhile()
        try:
            with ThreadPoolExecutor(max_workers=1) as thread:
                return thread.submit(asyncio.run, _graded_and_closed(lab, order)).result()
        finally:
            self.lab = None

    def _probe(self, request: httpx.Request) -> httpx.Response:
        return self.probes.begin(request)

    def _probe_state(self, request: httpx.Request, probe: str) -> httpx.Response:
        return self.probes.look(request, probe)

    def _probe_cancel(self, request: httpx.Request, probe: str) -> httpx.Response:
        return self.probes.cancel(request, probe)

    def _stop_grading(self, request: httpx.Request, run: str) -> httpx.Response:
        return httpx.Response(200, json={"stopped": self.lab is not None})

    def _generate(self, request: httpx.Request) -> httpx.Response:
        """Lines of a chat that says ``says(order)``, a letter a piece; ``chat_refusal`` instead, or ``chat_hold`` before the end."""
        order = json.loads(request.content)
        self.chats.append(order)
        if self.chat_refusal is not None:
            return _error(*self.chat_refusal)
        return httpx.Response(200, content=self._chat(order), headers={"Content-Type": "application/x-ndjson"})

    async def _chat(self, order: dict[str, Any]) -> AsyncIterator[bytes]:
        for line in fake_script.chat(order, self.says(order)):
            if line["type"] == "usage" and self.chat_hold is not None:
                await self.chat_hold.wait()
            if line["type"] == "usage" and self.chat_breaks:
                line = {"type": "error", "code": "failed", "message": "the sampler died"}
            yield json.dumps(line).encode() + b"\n"

    def _adapter(self, request: httpx.Request, job: str, version: str) -> httpx.Response:
        head = max((e["data"]["version"] for e in self.journal if e["job"] == job and e["kind"] == "step"), default=0)
        wanted = head if version == "latest" else int(version)
        if job not in self.jobs or wanted > head:
            return _error(404, "no such version")
        return httpx.Response(200, content=_archive(wanted), headers={"X-Policy-Version": str(wanted), "Content-Type": "application/zip"})

    def _rollouts(self, request: httpx.Request, job: str) -> httpx.Response:
        if job not in self.jobs:
            return _error(404, "no such job")
        version = int(request.url.params.get("version", 0))
        return httpx.Response(200, json=fake_script.rollouts(job, version, self.jobs[job]["spec"]))

    def _delete_version(self, request: httpx.Request, job: str, version: str) -> httpx.Response:
        if job not in self.jobs or int(version) > self._head(job):
            return _error(404, "no such version")
        if not self.ended(job) or int(version) == self._head(job):
            return _error(409, "it may still be needed")
        self.emit(job, "version_deleted", version=int(version))
        return httpx.Response(200, json={"job": job, "version": int(version)})

    def _delete_completions(self, request: httpx.Request, job: str) -> httpx.Response:
        if job not in self.jobs:
            return _error(404, "no such job")
        if not self.ended(job):
            return _error(409, "the job has not ended; cancel it first")
        self.emit(job, "completions_deleted")
        return httpx.Response(200, json={"job": job})

    def _groups(self, request: httpx.Request, job: str) -> httpx.Response:
        if job not in self.jobs:
            return _error(404, "no such job")
        asked, head = request.url.params, self._head(job)
        version = int(asked.get("version", max(0, head - 1)))
        if version > head:
            return _error(404, f"no finished rollout of version {version}")
        return httpx.Response(200, json=fake_groups.answer(job, self.jobs[job]["spec"], version, asked))

    def _row_versions(self, request: httpx.Request, job: str, row: str) -> httpx.Response:
        return httpx.Response(200, json={"versions": list(range(self._head(job)))})

    def _head(self, job: str) -> int:
        return max((e["data"]["version"] for e in self.journal if e["job"] == job and e["kind"] == "step"), default=0)

    def _evaluation(self, request: httpx.Request, job: str, version: str) -> httpx.Response:
        done = [e["data"]["version"] for e in self.journal if e["job"] == job and e["kind"] == "eval"]
        asked = request.url.params
        wanted, against = max(done, default=0) if version == "latest" else int(version), int(asked.get("against", 0))
        if job not in self.jobs or not {wanted, against} <= set(done):
            return _error(404, f"version {wanted} was not evaluated")
        found = fake_script.evaluation(job, self.jobs[job]["spec"], wanted, against, asked.get("change", ""))
        start, limit = int(asked.get("offset", 0)), int(asked.get("limit", 100))
        return httpx.Response(200, json={**found, "rows": found["rows"][start : start + limit]})

    def _burst(self, request: httpx.Request, job: str, count: str) -> httpx.Response:
        """Not of the contract: many events at once, for tests of what stands behind."""
        for number in range(int(count)):
            self.emit(job, "novelty", number=number)
        return httpx.Response(200, json={"job": job})

    def _next_second(self) -> datetime:
        return _T0 + timedelta(seconds=len(self.journal))


_ROUTES = (
    ("PUT", r"/jobs/([^/]+)", "_submit"),
    ("DELETE", r"/jobs/([^/]+)", "_delete"),
    ("POST", r"/jobs/([^/]+)/(cancel|pause|resume)", "_command"),
    ("GET", r"/jobs/([^/]+)/adapters/(latest|\d+)", "_adapter"),
    ("GET", r"/jobs/([^/]+)/rollouts", "_rollouts"),
    ("DELETE", r"/jobs/([^/]+)/adapters/(\d+)", "_delete_version"),
    ("DELETE", r"/jobs/([^/]+)/completions", "_delete_completions"),
    ("GET", r"/jobs/([^/]+)/groups", "_groups"),
    ("GET", r"/jobs/([^/]+)/rows/(\d+)/versions", "_row_versions"),
    ("GET", r"/jobs/([^/]+)/evaluations/(latest|\d+)", "_evaluation"),
    ("POST", r"/fake/([^/]+)/burst/(\d+)", "_burst"),
    ("GET", "/events", "_events"),
    ("GET", "/models", "_models"),
    ("GET", r"/models/(.+)/tokenizer", "_tokenizer"),
    ("GET", "/status", "_status"),
    ("GET", "/overview", "_overview"),
    ("POST", "/whatif", "_whatif"),
    ("POST", "/admission/(open|pause|drain)", "_admission"),
    ("PATCH", "/policy", "_policy"),
    ("PATCH", r"/jobs/([^/]+)", "_priority"),
    ("POST", "/estimate", "_estimate"),
    ("POST", "/probes", "_probe"),
    ("GET", r"/probes/([^/]+)", "_probe_state"),
    ("POST", r"/probes/([^/]+)/cancel", "_probe_cancel"),
    ("POST", "/graders/run", "_grade"),
    ("POST", "/generate", "_generate"),
    ("POST", r"/graders/runs/([^/]+)/stop", "_stop_grading"),
)


async def graded(lab: Lab, order: dict[str, Any]) -> httpx.Response:
    """The answer of ``POST /graders/run``."""
    try:
        return httpx.Response(200, json=await lab.run(LabOrder(**order)))
    except EngineError as error:
        return httpx.Response(error.status, json=error.body())


async def _graded_and_closed(lab: Lab, order: dict[str, Any]) -> httpx.Response:
    try:
        return await graded(lab, order)
    finally:
        await lab.close()


def _error(status: int, message: str, problems: Any = ()) -> httpx.Response:
    listed = [{"field": field, "message": text} for field, text in problems]
    return httpx.Response(status, json={"error": {"message": message, "type": "x", "param": None, "code": "x", "problems": listed}})


def _archive(version: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("adapter_config.json", json.dumps({"peft_type": "LORA", "version": version}))
        archive.writestr("adapter_model.safetensors", b"\0" * 1000)
    return buffer.getvalue()


if __name__ == "__main__":
    from tests.portal.fake_server import main

    main()
