"""Trials as page and API send them, and a sandbox whose answers the test writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.rewards.sandbox import Output, Verdict

SOURCE = "def grade(sample, item):\n    return sample['text'] == item['answer']\n"
PYTHON = {"type": "python", "source": SOURCE}
SUBSTRING = {"type": "string_check", "operation": "like"}


class Scripted:
    """Answers ``verdicts`` one after the other, the last again and again."""

    def __init__(self, *verdicts: Verdict, prints: str = ""):
        self._verdicts, self._prints = list(verdicts), prints

    async def grade(self, key: str, source: str, items: Sequence[Mapping[str, Any]], limits: Any = None) -> list[Verdict]:
        return [self._verdicts.pop(0) if len(self._verdicts) > 1 else self._verdicts[0] for _ in items]

    async def output(self, key: str, source: str) -> Output:
        return Output(text=self._prints)

    async def close(self) -> None: ...


def typed(text: str = "42", item: Any = None, repeats: int = 1) -> dict[str, Any]:
    return {"on": {"type": "text", "samples": [{"output_text": text, "item": item or {"answer": "42"}}]}, "repeats": repeats}


def rows(dataset: Any, repeats: int = 1, **more: Any) -> dict[str, Any]:
    return {"on": {"type": "rows", "dataset": dataset.public_id, "column": "answer", "count": 3, **more}, "repeats": repeats}


CORPUS: dict[str, Any] = {"on": {"type": "corpus"}}
