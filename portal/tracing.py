"""OpenTelemetry traces of requests, tasks and calls to engines: only with the extra ``otel``, and only where a collector is named.

What is sent where, and how much of it, is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_SAMPLER …). Spans
carry the request's id and the organisation's, as the logs do, and never a name, a prompt or a secret.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import structlog

log = structlog.get_logger(__name__)

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_stop: list[Callable[[], None]] = []


def start(process: str, exporter: Any = None) -> bool:
    """Trace this process from here on; whether it does. ``process``: web, worker or ingester. ``exporter``: for tests, instead of OTLP.

    Before the web process loads its middleware. What forks calls it in the child: the thread that sends does not survive a fork.
    """
    if exporter is None and not any(os.environ.get(name) for name in ENDPOINTS):
        return False
    try:
        from opentelemetry.instrumentation.celery import CeleryInstrumentor
        from opentelemetry.instrumentation.django import DjangoInstrumentor
        from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
    except ImportError as error:
        log.warning(
            "tracing_not_installed",
            reason=str(error),
            mend="pip install -e '.[otel]' in the checkout, or unset OTEL_EXPORTER_OTLP_ENDPOINT",
        )
        return False
    name = os.environ.get("OTEL_SERVICE_NAME") or f"marlaas-{process}"
    provider = TracerProvider(resource=Resource.create({"service.name": name}))
    provider.add_span_processor(SimpleSpanProcessor(exporter) if exporter else BatchSpanProcessor(_otlp()))
    DjangoInstrumentor().instrument(tracer_provider=provider, response_hook=_name_request)
    CeleryInstrumentor().instrument(tracer_provider=provider)
    HTTPXClientInstrumentor().instrument(tracer_provider=provider)
    _stop.extend([DjangoInstrumentor().uninstrument, CeleryInstrumentor().uninstrument, HTTPXClientInstrumentor().uninstrument])
    _stop.append(provider.shutdown)
    log.info("tracing_started", service=name)
    return True


def stop() -> None:
    """Send what is left, and trace no more. Twice is once."""
    while _stop:
        _stop.pop(0)()


def ids(_logger: Any, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    """For structlog: a line that is logged within a span names its trace."""
    if _stop:
        from opentelemetry import trace

        context = trace.get_current_span().get_span_context()
        if context.is_valid:
            event |= {"trace_id": f"{context.trace_id:032x}", "span_id": f"{context.span_id:016x}"}
    return event


def _otlp() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _name_request(span: Any, request: Any, response: Any) -> None:
    """Called when the answer is there, so all of the request's middleware has run."""
    if not span.is_recording():
        return
    known = {"marlaas.request_id": getattr(request, "request_id", None), "marlaas.tenant": _tenant(request)}
    span.set_attributes({name: value for name, value in known.items() if value})


def _tenant(request: Any) -> str | None:
    """Only what is known already: asking for it here would be a query."""
    return getattr(request.__dict__.get("tenant"), "public_id", None)
