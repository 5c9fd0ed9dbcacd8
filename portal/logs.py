"""Structured logs on standard error: key=value for people, JSON for machines.

Secrets do not enter an event. The addresses of requests do, and what a mailed link opens stands in its address: that part is veiled in each
line, whoever wrote it, and so is whatever looks like an API token.
"""

from __future__ import annotations

import logging.config
import re
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
_OPENS = r"/join/[^/\s]+/|/accounts/confirm-email/|/accounts/password/reset/key/|\bmrl_(?:live_)?[a-z2-7]{12}_"
_SECRET = re.compile(rf"({_OPENS})[^/\s\"'<>?&,]+")


def configure(*, json: bool) -> None:
    """Send structlog and the standard library's loggers through one formatter."""
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"line": {"()": formatter, "json": json}},
            "filters": {"brief": {"()": lambda: _brief}},
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
            "root": {"handlers": ["stderr"], "level": "INFO"},
            "loggers": {
                **{name: {"level": "WARNING"} for name in ("httpx", "httpcore", "daphne", "django_structlog", "asyncio")},
                "django.request": {"filters": ["brief"]},
            },
        }
    )
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def _brief(record: logging.LogRecord) -> bool:
    """A refusal is no fault: its line says who was refused what, and where in our code that was is nobody's question."""
    if getattr(record, "status_code", 0) == 403:
        record.exc_info = None
    return True


def formatter(*, json: bool) -> logging.Formatter:
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=_plain)
    return structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, _veil, renderer], foreign_pre_chain=_SHARED
    )


def _veil(logger: Any, method: str, event: dict[str, Any]) -> dict[str, Any]:
    return {name: _SECRET.sub(r"\1…", value) if isinstance(value, str) else value for name, value in event.items()}


def _plain(stream: Any, exc_info: Any) -> None:
    stream.write("\n" + structlog.processors._format_exception(exc_info))
