"""The engine's lines of a chat as OpenAI's objects: chunks while it streams, one completion when it does not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Line = dict[str, Any]


class Shape:
    """Of one chat. ``created``: Unix time."""

    def __init__(self, chat: str, model: str, created: int, *, n: int, logprobs: bool):
        self._chat, self._model, self._created = chat, model, created
        self._n, self._logprobs = n, logprobs
        self._greeted: set[int] = set()

    def chunks(self, line: Line) -> Iterator[dict[str, Any]]:
        """What a line is to a client that streams; ``begin`` and ``usage`` are nothing to it."""
        if line["type"] == "delta":
            yield from self._greeting(line["index"])
            if line["text"] or line["logprobs"]:
                yield self._chunk(line["index"], {"content": line["text"]}, logprobs=self._told(line["logprobs"]))
        elif line["type"] == "end":
            yield from self._greeting(line["index"])
            yield self._chunk(line["index"], {}, finish_reason=line["finish_reason"])

    def usage_chunk(self, usage: dict[str, Any]) -> dict[str, Any]:
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}

    def whole(self, lines: list[Line]) -> dict[str, Any]:
        """The completion of all ``lines``, the last of which is ``usage``."""
        choices = [self._choice(index, [line for line in lines if line.get("index") == index]) for index in range(self._n)]
        return {**self._head("chat.completion"), "choices": choices, "usage": usage(lines[-1])}

    def _choice(self, index: int, lines: list[Line]) -> dict[str, Any]:
        told = [one for line in lines if line["type"] == "delta" for one in line["logprobs"]]
        return {
            "index": index,
            "message": {"role": "assistant", "content": "".join(line.get("text", "") for line in lines), "refusal": None},
            "logprobs": self._told(told),
            "finish_reason": lines[-1]["finish_reason"],
        }

    def _greeting(self, index: int) -> Iterator[dict[str, Any]]:
        if index not in self._greeted:
            self._greeted.add(index)
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def _chunk(self, index: int, delta: dict[str, Any], *, finish_reason: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._chat, "object": kind, "created": self._created, "model": self._model}

    def _told(self, tokens: list[dict[str, Any]]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        return {"content": [{**_token(one), "top_logprobs": [_token(other) for other in one["top"]]} for one in tokens], "refusal": None}


def usage(line: Line) -> dict[str, Any]:
    return {
        "prompt_tokens": line["prompt_tokens"],
        "completion_tokens": line["completion_tokens"],
        "total_tokens": line["prompt_tokens"] + line["completion_tokens"],
        "prompt_tokens_details": {"cached_tokens": line["cached_tokens"]},
    }


def _token(one: dict[str, Any]) -> dict[str, Any]:
    return {"token": one["token"], "logprob": one["logprob"], "bytes": list(one["token"].encode(errors="replace"))}
