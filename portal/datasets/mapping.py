"""Which columns of an uploaded file are the prompt and the answer: proposed for the formats that people have, and open to change.

Pure. A mapping adds ``answer`` to the columns of a row and says where the prompt is; every other column stays as it was uploaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from portal.datasets.rows import BadLine, Row, as_it_is, check_columns, excerpt, from_messages, from_prompt, kind, names

SAMPLE_ROWS = 100
MAX_SYSTEM = 4000
EXTRACTS = {"": "the column as it stands", "hash": "the text after the last ####", "boxed": "what is in the last \\boxed{…}"}
PROMPTS = ("prompt", "question", "problem", "query", "instruction", "input", "task", "text")
ANSWERS = (
    *("answer", "reference_answer", "correct_answer", "final_answer", "ground_truth", "reward_model.ground_truth", "expected_answer"),
    *("expected_output", "expected", "reference", "target", "label", "completion", "response", "output", "solution", "answers"),
)
CHATS = ("messages", "conversations", "conversation", "chat", "dialogue")
_HASH = re.compile(r"####[ \t]*([^\n]+)")


class BadMapping(ValueError):
    """``field`` of a mapping that cannot be, and why."""

    def __init__(self, field: str, message: str):
        self.field = field
        super().__init__(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mapping:
    """Names of columns, "" for none. ``prompt`` is a question as text, ``messages`` a chat; neither: rows have our own names already.

    ``context``: a column put below the prompt. ``answer`` (a dotted path reaches into objects) becomes ``item.answer``, after
    ``extract``. ``answer_turn``: the chat ends with the right answer, which is cut off and becomes ``item.answer``. ``system``: a system
    message put first.
    """

    prompt: str = ""
    messages: str = ""
    context: str = ""
    answer: str = ""
    extract: str = ""
    answer_turn: bool = False
    system: str = ""

    @property
    def plain(self) -> bool:
        return self == Mapping()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """``kind``: a word for the format; ``title``: the same for people."""

    kind: str
    title: str
    mapping: Mapping

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def parse(raw: Any) -> Mapping:
    """``raw`` (JSON-like) as a mapping; raises ``BadMapping``."""
    if not isinstance(raw, dict):
        raise BadMapping("mapping", 'must be an object such as {"prompt": "question", "answer": "answer"}')
    known = {field.name: field.type for field in fields(Mapping)}
    for name, value in raw.items():
        if name not in known:
            raise BadMapping("mapping", f"has no {str(name)[:40]}; choose among {', '.join(known)}")
        if not isinstance(value, bool if name == "answer_turn" else str):
            raise BadMapping("mapping", f"{name} must be {'true or false' if name == 'answer_turn' else 'text'}")
    mapping = Mapping(**raw)
    if mapping.prompt and mapping.messages:
        raise BadMapping("mapping", "choose a prompt column or a chat column, not both")
    if mapping.extract not in EXTRACTS:
        raise BadMapping("mapping", f"extract must be one of {', '.join(repr(name) for name in EXTRACTS)}")
    if mapping.answer_turn and mapping.prompt:
        raise BadMapping("mapping", "only a chat can end with the right answer")
    if len(mapping.system) > MAX_SYSTEM:
        raise BadMapping("mapping", f"the system message has at most {MAX_SYSTEM:,} characters")
    return mapping


def apply(mapping: Mapping, item: dict[str, Any]) -> Row:
    """The row that ``item`` makes; raises ``BadLine``."""
    if mapping == _PLAIN:
        return as_it_is(item)
    check_columns(item)
    item = dict(item)
    messages = _messages(mapping, item)
    if mapping.answer_turn:
        if messages[-1]["role"] != "assistant" or len(messages) < 2:
            fix = "add the answer as the last message, or say that chats do not end with it"
            raise BadLine("no_answer", mapping.messages or "messages", "the chat does not end with the assistant's answer", fix)
        item["answer"] = _extracted(mapping, messages.pop()["content"], mapping.messages or "messages")
    elif mapping.answer:
        _put_answer(mapping, item)
    if mapping.system and messages[0]["role"] != "system":
        messages.insert(0, {"role": "system", "content": mapping.system})
    return Row(messages, item)


def propose(samples: Sequence[dict[str, Any]]) -> Proposal | None:
    """What the first rows look like; None when no column looks like a prompt."""
    if not samples:
        return None
    common = [name for name in samples[0] if all(name in sample for sample in samples)]
    for column in CHATS:
        if column in common and all(_is_chat(sample[column]) for sample in samples):
            return _chat(column, common, samples)
    if "prompt" in common and all(_is_chat(sample["prompt"]) for sample in samples):
        answer = _answer(common, samples, "prompt")
        return Proposal(kind="chat_prompt", title="Chats in the column prompt", mapping=Mapping(messages="prompt", answer=answer))
    prompt = next((name for name in PROMPTS if name in common and all(isinstance(s[name], str) for s in samples)), "")
    return _question(prompt, common, samples) if prompt else None


def _question(prompt: str, common: list[str], samples: Sequence[dict[str, Any]]) -> Proposal:
    answer = _answer(common, samples, prompt)
    extract = _extract(answer, samples)
    context = "input" if prompt == "instruction" and "input" in common else ""
    if answer == "answer" and not extract and prompt != "prompt" and {"context", "supporting_facts"} <= set(common):
        return Proposal(kind="hotpotqa", title="HotpotQA rows", mapping=Mapping(prompt=prompt, answer=answer))
    if prompt == "prompt" and (not answer or answer == "answer") and not extract:
        return Proposal(kind="plain", title="Rows with a prompt", mapping=Mapping())
    titles = {"hash": ("gsm8k", "GSM8K rows"), "boxed": ("problem_solution", "Problems with worked solutions")}
    known = {("problem", ""): ("problem_answer", "Problems with answers"), ("instruction", ""): ("instruction", "Instructions")}
    kind_, title = titles.get(extract) or known.get((prompt, extract), ("question_answer", "Questions with answers"))
    return Proposal(kind=kind_, title=title, mapping=Mapping(prompt=prompt, context=context, answer=answer, extract=extract))


def _chat(column: str, common: list[str], samples: Sequence[dict[str, Any]]) -> Proposal:
    answer = _answer(common, samples, column)
    answered = all(_role(sample[column][-1]) == "assistant" for sample in samples)
    if answered and not answer:
        mapping = Mapping(messages=column, answer_turn=True)
        return Proposal(kind="answered_chat", title="Chats that end with the right answer", mapping=mapping)
    if column == "messages" and answer in ("", "answer"):
        return Proposal(kind="plain", title="Chats", mapping=Mapping())
    kind_ = "openai_rft" if column == "messages" else "chat"
    title = "OpenAI reinforcement rows" if kind_ == "openai_rft" else "Chats"
    return Proposal(kind=kind_, title=title, mapping=Mapping(messages=column, answer="" if answer == "answer" else answer))


def _answer(common: list[str], samples: Sequence[dict[str, Any]], prompt: str) -> str:
    for name in ANSWERS:
        if name.partition(".")[0] in common and name != prompt and all(_is_answer(_dig(sample, name)) for sample in samples):
            return name
    return ""


def _extract(answer: str, samples: Sequence[dict[str, Any]]) -> str:
    values = [_dig(sample, answer) for sample in samples] if answer else []
    if values and all(isinstance(value, str) and _HASH.search(value) for value in values):
        return "hash"
    return "boxed" if values and all(isinstance(value, str) and last_boxed(value) is not None for value in values) else ""


def _is_answer(value: Any) -> bool:
    return value is not None and value != "" and not isinstance(value, dict)


def _is_chat(value: Any) -> bool:
    if isinstance(value, str):
        return value.lstrip().startswith('[{"')
    return isinstance(value, list) and bool(value) and all(isinstance(turn, dict) and _role(turn) for turn in value)


def _role(turn: Any) -> Any:
    role = turn.get("role", turn.get("from")) if isinstance(turn, dict) else None
    return {"gpt": "assistant"}.get(role, role) if isinstance(role, str) else role


def _messages(mapping: Mapping, item: dict[str, Any]) -> list[dict[str, str]]:
    if mapping.prompt:
        messages = from_prompt(_column(item, mapping.prompt, "prompt"), mapping.prompt)
        if mapping.context and (more := item.get(mapping.context)):
            if not isinstance(more, str):
                raise BadLine("wrong_type", mapping.context, f"must be text, got {kind(more)}", "write it as a string", more)
            messages[0]["content"] += f"\n\n{more}"
        return messages
    if mapping.messages:
        chat = _column(item, mapping.messages, "chat")
        return from_messages(chat, mapping.messages, may_end_with_answer=mapping.answer_turn)
    if mapping.answer_turn and "messages" in item:
        return from_messages(item["messages"], "messages", may_end_with_answer=True)
    return list(as_it_is(item).messages)


def _column(item: dict[str, Any], name: str, noun: str) -> Any:
    if name not in item:
        message = f"the row has no column {name[:40]}, which is to be the {noun}; its columns are {names(item)}"
        raise BadLine("missing_column", name[:100], message, "add it to this row, or choose another column", item)
    return item[name]


def _put_answer(mapping: Mapping, item: dict[str, Any]) -> None:
    value = _dig(item, mapping.answer)
    if value is None or value == "":
        column = mapping.answer.partition(".")[0]
        wrong = "is empty" if column in item else f"is missing; the row's columns are {names(item)}"
        raise BadLine("no_answer", column[:100], f"the answer {wrong}", "write the right answer, or remove the row", item)
    answer = _extracted(mapping, value, mapping.answer)
    if mapping.answer == "answer" and answer != value:
        item.setdefault("solution", value)
    item["answer"] = answer


def _extracted(mapping: Mapping, value: Any, column: str) -> Any:
    if not mapping.extract:
        return value
    text = value if isinstance(value, str) else ""
    found = last_hash(text) if mapping.extract == "hash" else last_boxed(text)
    if not found:
        mark = "#### before the answer" if mapping.extract == "hash" else "\\boxed{…} with the answer"
        raise BadLine("no_answer", column, f"there is no {mark}", "add it, or take the column as it stands", excerpt(text[-100:]))
    return found


def last_hash(text: str) -> str | None:
    """GSM8K's answers end with ``#### 1,234``: the number, without separators of thousands or a currency sign."""
    found = _HASH.findall(text)
    if not found or not found[-1].strip():
        return None
    answer = found[-1].strip()
    number = answer.replace(",", "").replace("$", "").strip()
    return number if re.fullmatch(r"-?\d+(\.\d+)?", number) else answer


def last_boxed(text: str) -> str | None:
    r"""What stands in the last ``\boxed{…}``, braces balanced; None without one."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return None
    begin = start + len("\\boxed{")
    depth = 1
    for position in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[begin:position].strip() or None
    return None


def _dig(item: Any, path: str) -> Any:
    if path in item:
        return item[path]
    for part in path.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    return item


_PLAIN = Mapping()
