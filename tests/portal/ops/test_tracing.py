"""Traces into memory: what a span says of a request and of a call to the engine, and that nothing happens unasked."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from portal import gateway, tracing
from tests.portal.world import World


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    assert tracing.start("web", exporter)
    yield exporter
    tracing.stop()


def test_a_request_and_its_call_to_the_engine_are_one_trace(world: World, spans: InMemorySpanExporter, settings: Any) -> None:
    job = world.job()
    spans.clear()
    settings.ENGINE_URL, settings.ENGINE_TRANSPORT = "http://127.0.0.1:9", None  # nothing listens there, which is a call too
    gateway.forget()
    answer = world.api(world.alice).get(f"/api/v1/jobs/{job.public_id}/rollouts/?version=0")
    request, *_ = [span for span in spans.get_finished_spans() if span.kind.name == "SERVER"]
    called = [span for span in spans.get_finished_spans() if span.kind.name == "CLIENT"]
    assert request.attributes["marlaas.request_id"] == answer["X-Request-Id"]
    assert answer.status_code == 503
    assert {span.context.trace_id for span in called} == {request.context.trace_id}
    assert "Sums" not in str([dict(span.attributes) for span in spans.get_finished_spans()])


def test_without_a_collector_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.start("web")
    assert tracing.ids(None, "", {"event": "x"}) == {"event": "x"}


def test_without_the_extra_the_site_starts_untraced(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setattr(builtins, "__import__", without)
    assert not tracing.start("web")
