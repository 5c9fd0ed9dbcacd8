"""The base model's own tokenizer and chat template. The only reader of ``transformers`` on the sampling side."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase


class ModelTokens:
    """``sampling.Tokens`` over a transformers tokenizer. Rendered prompts are remembered: each epoch asks for the same ones."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, remembered_prompts: int = 8192):
        self._tokenizer = tokenizer
        self._rendered = lru_cache(maxsize=remembered_prompts)(self._render)

    @classmethod
    def load(cls, path: Path) -> ModelTokens:
        return cls(AutoTokenizer.from_pretrained(path, local_files_only=True))

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        return list(self._rendered(tuple((m["role"], m["content"]) for m in messages)))

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def _render(self, messages: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        chat = [{"role": role, "content": content} for role, content in messages]
        return tuple(self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False))
