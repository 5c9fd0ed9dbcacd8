"""Structured logs on standard error: key=value for people, JSON for machines. Secrets never enter an event, so none need be filtered."""

from __future__ import annotations

import logging.config
from typing import Any

import structlog

from portal import tracing

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    tracing.ids,
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
]


def configure(*, json: bool) -> None:
    """Send structlog and the standard library's loggers through one formatter."""
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=_plain)
    formatter = {
        "()": structlog.stdlib.ProcessorFormatter,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        "foreign_pre_chain": _SHARED,
    }
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": formatter},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": "INFO"},
            "loggers": {name: {"level": "WARNING"} for name in ("httpx", "httpcore", "daphne", "django_structlog", "asyncio")},
        }
    )
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _plain(stream: Any, exc_info: Any) -> None:
    stream.write("\n" + structlog.processors._format_exception(exc_info))
