"""A chat's request, read: OpenAI's body into the engine's order, every bad field named."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from portal.errors import Invalid
from portal.openai import fields

MAX_SEED = 2**62
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
Problems = list[tuple[str, str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """``order``: the fields of the engine's ``ChatOrder`` but whose it is and of which version."""

    model: str
    order: dict[str, Any]
    stream: bool
    include_usage: bool

    @property
    def n(self) -> int:
        return self.order["n"]

    @property
    def most_new_tokens(self) -> int | None:
        return self.order["max_new_tokens"]

    @property
    def characters(self) -> int:
        return sum(len(message["content"].encode()) + 16 for message in self.order["messages"])


def parse(raw: Any) -> ChatRequest:
    """Raises ``Invalid``."""
    problems: Problems = []
    given = fields.taken(raw, fields.CHAT, problems)
    options = given.get("stream_options", {})
    if not isinstance(options, dict) or set(options) - {"include_usage", "include_obfuscation"}:
        problems.append(("stream_options", "may hold include_usage"))
        options = {}
    model = given.get("model")
    if not isinstance(model, str):
        problems.append(("model", "name a base model, or a job with its step, as in job_…@12"))
    logprobs = _flag(given, "logprobs", problems)
    top = _number(given, "top_logprobs", problems, low=0, high=20, whole=True, default=None)
    if top is not None and not logprobs:
        problems.append(("top_logprobs", "needs logprobs to be true"))
    order = {
        "messages": _messages(given.get("messages"), problems),
        "n": _number(given, "n", problems, low=1, high=8, whole=True, default=1),
        "max_new_tokens": _most(given, problems),
        "temperature": _number(given, "temperature", problems, low=0, high=2, default=1.0),
        "top_p": _number(given, "top_p", problems, low=1e-6, high=1, default=1.0),
        "seed": _seed(given, problems),
        "stop": _stops(given.get("stop"), problems),
        "top_logprobs": (top or 0) if logprobs else None,
    }
    stream = _flag(given, "stream", problems)
    if problems:
        raise Invalid(problems)
    return ChatRequest(model=str(model), order=order, stream=stream, include_usage=options.get("include_usage") is True)


def _messages(raw: Any, problems: Problems) -> list[dict[str, str]]:
    if not isinstance(raw, list) or not 1 <= len(raw) <= 1000:
        problems.append(("messages", "must be a list of 1 to 1000 messages"))
        return []
    known = len(problems)
    messages = [_message(message, f"messages.{place}", problems) for place, message in enumerate(raw)]
    if len(problems) == known and not messages[-1]["content"]:
        problems.append(("messages", "the last message is empty; say what is to be answered"))
    return messages


def _message(raw: Any, path: str, problems: Problems) -> dict[str, str]:
    if not isinstance(raw, dict):
        problems.append((path, "must be an object with role and content"))
        return {"role": "user", "content": ""}
    given = {name: value for name, value in raw.items() if value is not None}
    for name in sorted(set(given) - {"role", "content", "name"}):
        problems.append((f"{path}.{name}"[:100], "is not supported: messages have role and content"))
    role = ROLES.get(given["role"]) if isinstance(given.get("role"), str) else None
    if role is None:
        problems.append((f"{path}.role", f"choose among {', '.join(ROLES)}"))
    return {"role": role or "user", "content": _content(given.get("content"), f"{path}.content", problems)}


def _content(raw: Any, path: str, problems: Problems) -> str:
    parts = [{"type": "text", "text": raw}] if isinstance(raw, str) else raw
    if isinstance(parts, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in parts
    ):
        text = "".join(part["text"] for part in parts)
        if len(text) <= 500_000:
            return text
    problems.append((path, "must be a text of at most 500,000 characters, or a list of text parts"))
    return ""


def _most(given: dict[str, Any], problems: Problems) -> int | None:
    if {"max_tokens", "max_completion_tokens"} <= set(given):
        problems.append(("max_tokens", "is the older name of max_completion_tokens; say one of them"))
    name = "max_completion_tokens" if "max_completion_tokens" in given else "max_tokens"
    return _number(given, name, problems, low=1, high=1_000_000, whole=True, default=None)


def _seed(given: dict[str, Any], problems: Problems) -> int:
    """Any whole number that JSON clients have; without one, chance."""
    seed = given.get("seed")
    if seed is None:
        return secrets.randbelow(MAX_SEED)
    if type(seed) is not int or not -(2**63) <= seed < 2**63:
        problems.append(("seed", "must be a whole number of 64 bits"))
        return 0
    return seed % MAX_SEED


def _stops(raw: Any, problems: Problems) -> list[str]:
    stops = [raw] if isinstance(raw, str) else ([] if raw is None else raw)
    if isinstance(stops, list) and len(stops) <= 4 and all(isinstance(stop, str) and 1 <= len(stop) <= 200 for stop in stops):
        return stops
    problems.append(("stop", "must be a text or a list of up to 4, each of 1 to 200 characters"))
    return []


def _flag(given: dict[str, Any], name: str, problems: Problems) -> bool:
    value = given.get(name, False)
    if not isinstance(value, bool):
        problems.append((name, "must be true or false"))
    return value is True


def _number(given: dict[str, Any], name: str, problems: Problems, *, low: float, high: float, default: Any, whole: bool = False) -> Any:
    value = given.get(name, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)) or not low <= value <= high:
        shown = 0 if low < 1 and not whole and low else low
        problems.append((name, f"must be a {'whole ' if whole else ''}number {'above' if shown != low else 'from'} {shown} to {high}"))
        return default
    return value
