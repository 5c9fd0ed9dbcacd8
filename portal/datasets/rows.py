"""The rules of one row: what a decoded record must be, and the canonical line that the engine reads.

Pure: no Django, no I/O. Every fault is a ``BadLine`` that names its cause, the field, the offending text and the fix.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec

from portal.escapes import ADVICE, lone_surrogate

PROMPT_COLUMNS = ("messages", "prompt")
ROLES = ("system", "user", "assistant", "tool")
OTHER_ROLES = {"developer": "system", "human": "user", "gpt": "assistant", "chatgpt": "assistant", "bot": "assistant", "model": "assistant"}
MAX_DEPTH = 32
MAX_KEY = 100
MAX_LIST = 10_000
MAX_TURNS = 1000
MAX_EXCERPT = 120
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_KEY = re.compile(rb'"\s*:')
_ONE_OBJECT = "write one JSON object a line"


class BadLine(Exception):
    """``cause``: a stable word for the kind of fault; ``column``: the field at fault or None; ``text``: the offending piece, cut short.

    ``ends_file``: nothing can be read behind it, and it stands for no row.
    """

    ends_file = False

    def __init__(self, cause: str, column: str | None, message: str, fix: str, text: Any = None):
        self.cause, self.column, self.message, self.fix = cause, column, message, fix
        self.text = excerpt(text)
        super().__init__(message)


def ending(bad: BadLine) -> BadLine:
    """``bad`` marked as the end of what can be read."""
    bad.ends_file = True
    return bad


class Row(msgspec.Struct, frozen=True):  # made once a row of millions: a frozen dataclass takes three times as long
    """``messages``: chat turns of role and content; ``item``: every column, as rewards see it."""

    messages: list[dict[str, str]]
    item: dict[str, Any]


def excerpt(value: Any, around: int = 0) -> str:
    """At most ``MAX_EXCERPT`` printable characters of ``value`` (bytes, text or JSON-like), beginning somewhat before ``around``."""
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        value = _encode(value)
    if isinstance(value, bytes):
        start = max(0, around - MAX_EXCERPT // 2)
        value, around = value[start : start + 4 * MAX_EXCERPT].decode("utf-8", "replace"), min(around, MAX_EXCERPT // 2)
    text = str(value)[: 4 * MAX_EXCERPT + around]
    text = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text).strip()
    return text if len(text) <= MAX_EXCERPT else f"{text[: MAX_EXCERPT - 1]}…"


def parse(line: bytes) -> Row:
    """``line`` (no newline, not blank) as a row whose columns are named as ours; raises ``BadLine``."""
    return as_it_is(decode(line))


def decode(line: bytes) -> dict[str, Any]:
    """One JSON object without NUL, repeated keys, deep nesting or giant lists; raises ``BadLine``."""
    if b"\x00" in line:
        at = line.index(0)
        message = f"a NUL byte at position {at + 1}"
        raise BadLine("nul", None, message, "remove it; the file may be binary or UTF-16", excerpt(line, at))
    if line.count(b"[") + line.count(b"{") > MAX_DEPTH:
        _check_depth(line)
    try:
        item = _decode(line)
    except msgspec.MsgspecError as error:
        raise _broken(line, error) from None
    if type(item) is not dict:
        raise BadLine("not_an_object", None, f"the line holds {kind(item)}, not an object", _ONE_OBJECT, line)
    if b"\\u0000" in line and _has_nul(item):
        raise BadLine("nul", _nul_column(item), "a NUL character (\\u0000)", "remove it", line)
    if _may_repeat_keys(line, item):
        json.loads(line, object_pairs_hook=_refuse_repeats)
    if line.count(b",") >= MAX_LIST:
        check_lists(item)
    return item


def check_columns(item: dict[str, Any]) -> None:
    """Raises ``BadLine`` for a column whose name nobody can use."""
    for key in item:
        if len(key) > MAX_KEY:
            raise BadLine("long_name", key[:40], f"a column's name has {len(key):,} characters", f"use at most {MAX_KEY}", key)


def as_it_is(item: dict[str, Any]) -> Row:
    """``item`` with its columns named as ours: exactly one of ``prompt`` and ``messages``. Raises ``BadLine``."""
    check_columns(item)
    if "prompt" in item:
        if "messages" in item:
            raise BadLine("two_prompts", "prompt", "the row has both messages and prompt", "keep one of the two", item["prompt"])
        return Row(from_prompt(item["prompt"], "prompt"), item)
    if "messages" in item:
        return Row(from_messages(item["messages"], "messages"), item)
    message = f"the row has neither messages nor prompt; its columns are {names(item)}"
    raise BadLine("no_prompt", None, message, "name the column with the question prompt, or choose it among the columns", item)


def canonical(index: int, row: Row) -> bytes:
    """The engine's line for row number ``index`` (from 0) of the dataset, with its newline."""
    return _encode({"row": index, "messages": row.messages, "item": row.item}) + b"\n"


def from_prompt(prompt: Any, column: str) -> list[dict[str, str]]:
    """One turn of the user."""
    if type(prompt) is not str:
        fix = "write the question as a string, or use messages for a chat"
        raise BadLine("wrong_type", column, f"must be text, got {kind(prompt)}", fix, prompt)
    if not prompt or prompt.isspace():
        raise BadLine("empty_prompt", column, "is empty", "write the question, or remove the row", prompt)
    return [{"role": "user", "content": prompt}]


def from_messages(messages: Any, column: str, *, may_end_with_answer: bool = False) -> list[dict[str, str]]:
    """Turns of role and content; other keys are dropped, ``developer`` counts as ``system``, from/value as role/content."""
    if isinstance(messages, str) and messages.lstrip().startswith("["):
        messages = _nested(messages, column)
    if not isinstance(messages, list) or not messages:
        fix = 'write [{"role": "user", "content": "…"}]'
        raise BadLine("wrong_type", column, "must be a list of at least one message", fix, messages)
    if len(messages) > MAX_TURNS:
        raise BadLine("too_long", column, f"has {len(messages):,} messages, more than {MAX_TURNS:,}", "shorten the conversation")
    turns = [_turn(message, position, column) for position, message in enumerate(messages)]
    if not may_end_with_answer and turns[-1]["role"] not in ("user", "tool"):
        fix = "end with the user's message: the model writes what follows"
        raise BadLine("ends_wrong", column, f"the last message is the {turns[-1]['role']}'s", fix, turns[-1]["content"])
    return turns


def _nested(text: str, column: str) -> Any:
    """JSON inside a cell, as a CSV carries a conversation."""
    try:
        return decode(b'{"cell":' + text.encode() + b"}")["cell"]
    except BadLine as bad:
        raise BadLine(bad.cause, column, f"the cell holds no readable list: {bad.message}", "write the messages as JSON", text) from None


def _turn(message: Any, position: int, column: str) -> dict[str, str]:
    where = f"{column}[{position}]"
    if not isinstance(message, dict):
        raise BadLine("wrong_type", column, f"{where} is {kind(message)}", "each message is an object with role and content", message)
    if "role" not in message and "from" in message:
        message = {"role": message["from"], "content": message.get("value")}
    role, content = message.get("role"), message.get("content")
    role = OTHER_ROLES.get(role, role) if isinstance(role, str) else role
    if role not in ROLES:
        raise BadLine("wrong_role", column, f"{where}.role is {str(role)[:40]!r}", f"choose among {', '.join(ROLES)}", message)
    if isinstance(content, list):
        content = _joined(content)
    if not isinstance(content, str):
        text = f"{where}.content must be text, got {kind(message.get('content'))}"
        raise BadLine("wrong_type", column, text, "only text can be trained on", message)
    if role in ("user", "tool") and (not content or content.isspace()):
        raise BadLine("empty_prompt", column, f"{where}.content is empty", "write the message, or remove it", message)
    return {"role": role, "content": content}


def _joined(parts: list[Any]) -> Any:
    """The text of content given as parts of type text; anything else as it is, to be refused by its type."""
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    return "".join(texts) if texts and all(isinstance(text, str) for text in texts) else parts


def _broken(line: bytes, error: Exception) -> BadLine:
    try:
        line.decode()
    except UnicodeDecodeError as bad:
        message = f"not UTF-8: byte {line[bad.start]:#04x} at position {bad.start + 1}"
        fix = "save the file as UTF-8, or choose the encoding that it has, such as Windows-1252"
        return BadLine("encoding", None, message, fix, line[max(0, bad.start - 40) : bad.start + 40].decode("cp1252", "replace"))
    if (lone := lone_surrogate(line)) is not None:
        return BadLine("broken_json", None, f"broken JSON: half a surrogate pair at position {lone + 1}", ADVICE, excerpt(line, lone))
    text = str(error).removeprefix("JSON is malformed: ").removeprefix("Input data was ")
    position = len(line)
    if found := re.search(r"\(byte (\d+)\)", text):
        position = int(found[1])
        text = f"{text[: found.start()].strip()} at position {position + 1}"
    return BadLine("broken_json", None, f"broken JSON: {text}", _advice(line, position), excerpt(line, position))


def _advice(line: bytes, position: int) -> str:
    """What the usual mistakes call for."""
    if line in (b"[", b"]", b"{", b"}") or line.endswith((b"},", b",")):
        return "the file looks like one JSON document over several lines; " + _ONE_OBJECT
    if line.startswith(b"{'"):
        return "this is Python's notation; JSON wants double quotes"
    if re.match(rb"[^\w]*(NaN|-?Infinity)", line[max(0, position - 1) :]) or b"NaN" in line[position : position + 4]:
        return "JSON has no NaN and no Infinity; write null or a number"
    if position >= len(line) - 1 and not line.endswith(b"}"):
        return "the line ends too early; a text must not contain a bare line break: write \\n"
    return _ONE_OBJECT


def _check_depth(line: bytes) -> None:
    """Refuse deep nesting before the decoder recurses. Called only for lines with many brackets."""
    depth = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', line):
        mark = token[0]
        depth += (mark in (b"[", b"{")) - (mark in (b"]", b"}"))
        if depth > MAX_DEPTH:
            raise BadLine("too_deep", None, f"nested more than {MAX_DEPTH} levels deep", "flatten the row", line)


def check_lists(item: Any, column: str | None = None) -> None:
    """Raises ``BadLine`` for a list of more than ``MAX_LIST`` entries at any depth."""
    if isinstance(item, dict):
        for key, inner in item.items():
            check_lists(inner, column or key)
    elif isinstance(item, list):
        if len(item) > MAX_LIST:
            message = f"holds a list of {len(item):,} entries, more than {MAX_LIST:,}"
            raise BadLine("giant_list", column, message, "leave out what no reward reads", item[:20])
        for inner in item:
            if isinstance(inner, (dict, list)):
                check_lists(inner, column)


def _may_repeat_keys(line: bytes, item: dict[str, Any]) -> bool:
    """Whether ``line`` may have written more keys than ``item`` has, the later ones in place of earlier ones.

    Every key ends with a quote and a colon. Where no quote is followed by white space, counting that pair is enough, and quick.
    """
    keys = _count_keys(item)
    if line.count(b'":') == keys and b'" ' not in line and b'"\t' not in line and b'"\r' not in line:
        return False
    return len(_KEY.findall(line)) != keys


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise BadLine("duplicate_key", key[:100], "the key appears twice in one object", "keep one of them", value)
        found[key] = value
    return found


def _count_keys(value: Any) -> int:
    if type(value) is dict:
        count = len(value)
        for inner in value.values():
            if type(inner) is dict or type(inner) is list:
                count += _count_keys(inner)
        return count
    count = 0
    for inner in value:
        if type(inner) is dict or type(inner) is list:
            count += _count_keys(inner)
    return count


def _has_nul(value: Any) -> bool:
    if isinstance(value, str):
        return "\x00" in value
    if isinstance(value, dict):
        return any("\x00" in key or _has_nul(inner) for key, inner in value.items())
    return isinstance(value, list) and any(_has_nul(inner) for inner in value)


def _nul_column(item: dict[str, Any]) -> str | None:
    return next((key for key, value in item.items() if "\x00" in key or _has_nul(value)), None)


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    known = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return "null" if value is None else known[type(value)]


def names(item: dict[str, Any]) -> str:
    """The columns of ``item``, for a message."""
    shown = [key[:40] for key in list(item)[:10]]
    return ", ".join(shown) + (", …" if len(item) > 10 else "") if shown else "none"
