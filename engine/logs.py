"""Log lines of the engine's processes: text for people, JSON for machines, each with the ids of what it is about.

The ids travel with the task: whoever begins something for a job or a request says so with ``about``, and each line that is logged inside,
however deep, carries them. In JSON the fields have the names that the portal's lines have.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType

_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_about: ContextVar[Mapping[str, str]] = ContextVar("about", default=MappingProxyType({}))


@contextmanager
def about(**ids: str) -> Iterator[None]:
    """What is logged inside is about these ids (``request_id``, ``job``, ``tenant``) and no others; empty ones are left out."""
    token = _about.set({name: value for name, value in ids.items() if value})
    try:
        yield
    finally:
        _about.reset(token)


def ids() -> Mapping[str, str]:
    """What this task is about."""
    return _about.get()


def formatter(*, as_json: bool) -> logging.Formatter:
    return _Json() if as_json else _Text(_FORMAT)


class _Text(logging.Formatter):
    """The ids follow the message, before a traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return " ".join([super().formatMessage(record), *(f"{name}={value}" for name, value in ids().items())])


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "event": record.getMessage(),
            **ids(),
            "logger": record.name,
            "level": record.levelname.lower(),
            "timestamp": f"{stamp}.{record.msecs * 1000:06.0f}Z",
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)
