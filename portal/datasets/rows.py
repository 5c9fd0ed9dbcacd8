"""The rules of one row: what a line of an uploaded file must be, and the canonical line that the engine reads."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

PROMPT_COLUMNS = ("messages", "prompt")
ROLES = ("system", "user", "assistant", "tool")
MAX_DEPTH = 32
MAX_KEY = 100
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_KEY = re.compile(rb'"\s*:')
_ONE_OBJECT = "write one JSON object a line"


class BadLine(Exception):
    """``column``: the field at fault or None; ``message``: what is wrong; ``fix``: how to mend it."""

    def __init__(self, column: str | None, message: str, fix: str):
        self.column, self.message, self.fix = column, message, fix
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Row:
    """``messages``: chat turns of role and content; ``item``: every column as uploaded."""

    messages: list[dict[str, str]]
    item: dict[str, Any]


def parse(line: bytes) -> Row:
    """``line`` (no newline, not blank) as a row; raises ``BadLine``."""
    item = _object(line)
    if long := next((key for key in item if len(key) > MAX_KEY), None):
        raise BadLine(long[:40], f"a column's name has {len(long):,} characters", f"use at most {MAX_KEY}")
    given = [name for name in PROMPT_COLUMNS if name in item]
    if len(given) == 2:
        raise BadLine("prompt", "the row has both messages and prompt", "keep one of the two")
    if not given:
        raise BadLine(
            None, f"the row has neither messages nor prompt; its columns are {_names(item)}", "name the column with the question prompt"
        )
    messages = _from_prompt(item["prompt"]) if given == ["prompt"] else _from_messages(item["messages"])
    return Row(messages, item)


def canonical(index: int, row: Row) -> bytes:
    """The engine's line for row number ``index`` (from 0) of the dataset, with its newline."""
    return _encode({"row": index, "messages": row.messages, "item": row.item}) + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    if b"\x00" in line:
        raise BadLine(None, f"a NUL byte at position {line.index(0) + 1}", "remove it; the file may be binary or UTF-16")
    _check_depth(line)
    try:
        item = _decode(line)
    except msgspec.MsgspecError as error:
        raise _broken(line, error) from None
    if not isinstance(item, dict):
        raise BadLine(None, f"the line holds {_kind(item)}, not an object", _ONE_OBJECT)
    if b"\\u0000" in line and _has_nul(item):
        raise BadLine(_nul_column(item), "a NUL character (\\u0000)", "remove it")
    _check_duplicate_keys(line, item)
    return item


def _broken(line: bytes, error: Exception) -> BadLine:
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        return BadLine(None, f"not UTF-8: byte {line[bad.start]:#04x} at position {bad.start + 1}", "save the file as UTF-8")
    text = str(error).removeprefix("JSON is malformed: ").removeprefix("Input data was ")
    if found := re.search(r"\(byte (\d+)\)", text):
        text = f"{text[: found.start()].strip()} at position {int(found[1]) + 1}"
    return BadLine(None, f"broken JSON: {text}", _ONE_OBJECT)


def _check_depth(line: bytes) -> None:
    """Refuse deep nesting before the decoder recurses; brackets are counted exactly only when there are many."""
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return
    depth = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', line):
        mark = token[0]
        depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        if depth > MAX_DEPTH:
            raise BadLine(None, f"nested more than {MAX_DEPTH} levels deep", "flatten the row")


def _check_duplicate_keys(line: bytes, item: dict[str, Any]) -> None:
    """Keys that a decoder would silently drop. As many key marks as decoded keys means none; else look closely."""
    if len(_KEY.findall(line)) == _count_keys(item):
        return
    json.loads(line, object_pairs_hook=_refuse_repeats)


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadLine(key[:100], "the key appears twice in one object", "keep one of them")
        found[key] = value
    return found


def _count_keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_count_keys(inner) for inner in value.values() if isinstance(inner, (dict, list)))
    if isinstance(value, list):
        return sum(_count_keys(inner) for inner in value if isinstance(inner, (dict, list)))
    return 0


def _from_prompt(prompt: Any) -> list[dict[str, str]]:
    if not isinstance(prompt, str):
        raise BadLine("prompt", f"must be text, got {_kind(prompt)}", "write the question as a string, or use messages for a chat")
    if not prompt.strip():
        raise BadLine("prompt", "is empty", "write the question, or remove the row")
    return [{"role": "user", "content": prompt}]


def _from_messages(messages: Any) -> list[dict[str, str]]:
    if not isinstance(messages, list) or not messages:
        raise BadLine("messages", "must be a list of at least one message", 'write [{"role": "user", "content": "…"}]')
    turns = [_turn(message, position) for position, message in enumerate(messages)]
    if turns[-1]["role"] not in ("user", "tool"):
        raise BadLine(
            "messages", f"the last message is the {turns[-1]['role']}'s", "end with the user's message: the model writes what follows"
        )
    return turns


def _turn(message: Any, position: int) -> dict[str, str]:
    where = f"messages[{position}]"
    if not isinstance(message, dict):
        raise BadLine("messages", f"{where} is {_kind(message)}, not an object", "give it a role and a content")
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise BadLine("messages", f"{where}.role is {str(role)[:40]!r}", f"choose among {', '.join(ROLES)}")
    if not isinstance(content, str):
        raise BadLine("messages", f"{where}.content must be text, got {_kind(content)}", "only text can be trained on")
    if not content.strip() and role in ("user", "tool"):
        raise BadLine("messages", f"{where}.content is empty", "write the message, or remove it")
    return {"role": role, "content": content}


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any("\x00" in key or _has_nul(inner) for key, inner in value.items())
    return isinstance(value, list) and any(_has_nul(inner) for inner in value)


def _nul_column(item: dict[str, Any]) -> str | None:
    return next((key for key, value in item.items() if _has_nul(value)), None)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else names[type(value)]


def _names(item: dict[str, Any]) -> str:
    shown = [key[:40] for key in list(item)[:10]]
    return ", ".join(shown) + (", …" if len(item) > 10 else "") if shown else "none"
