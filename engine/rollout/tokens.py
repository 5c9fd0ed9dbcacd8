"""The base model's own tokenizer and chat template. The only reader of ``transformers`` on the sampling side."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property, lru_cache
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from engine.ports import PortError

# Stand for the texts of a turn and of an observation while the chat template is asked what it writes around them.
TURN_MARK, OBSERVATION_MARK = "\u241eturn\u241e", "\u241eobservation\u241e"


class ModelTokens:
    """``sampling.Tokens`` over a transformers tokenizer. Rendered prompts are remembered: each epoch asks for the same ones."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, *, remembered_prompts: int = 8192):
        self._tokenizer = tokenizer
        self._rendered = lru_cache(maxsize=remembered_prompts)(self._render)
        self._around: dict[tuple[str, str], tuple[list[int], list[int]]] = {}

    @classmethod
    def load(cls, path: Path) -> ModelTokens:
        return cls(AutoTokenizer.from_pretrained(path, local_files_only=True))

    def render(self, messages: list[dict[str, str]]) -> list[int]:
        return list(self._rendered(tuple((m["role"], m["content"]) for m in messages)))

    def decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def observe(self, text: str, *, after: list[int], most: int, frame: tuple[str, str] = ("", "")) -> list[int]:
        before, behind = self._around_observation(frame)
        if before and after and before[0] == after[-1] and after[-1] in self._special_ids:  # the turn's end was sampled
            before = before[1:]
        room = most - len(before) - len(behind)
        if room < 0:
            raise PortError(
                f"without its text an observation takes {most - room} tokens; environment.max_observation_tokens allows {most}",
                attribution="user",
            )
        # Its text is data: the name of a special token in it must not become that token.
        ids = self._plain(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        return [*before, *ids[:room], *behind]

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self._tokenizer.all_special_ids)

    @cached_property
    def _plain(self) -> PreTrainedTokenizerBase:
        """A copy: how special tokens are read is a state of the tokenizer, and prompts are rendered in other threads."""
        return deepcopy(self._tokenizer)

    def _around_observation(self, frame: tuple[str, str]) -> tuple[list[int], list[int]]:
        """What stands between a sampled turn and the text inside ``frame`` in the user's next message, and after that text."""
        if frame not in self._around:
            before, behind = self._template_around_observation
            self._around[frame] = tuple(
                self._tokenizer(part, add_special_tokens=False)["input_ids"] for part in (before + frame[0], frame[1] + behind)
            )
        return self._around[frame]

    @cached_property
    def _template_around_observation(self) -> tuple[str, str]:
        chat = [("user", "?"), ("assistant", TURN_MARK), ("user", OBSERVATION_MARK)]
        messages = [{"role": role, "content": content} for role, content in chat]
        rendered = self._tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        before, found, behind = rendered.partition(TURN_MARK)[2].partition(OBSERVATION_MARK)
        if not found:
            raise PortError("the model's chat template has no place for a message after an answer: only single_turn works with it")
        return before, behind

    def _render(self, messages: tuple[tuple[str, str], ...]) -> tuple[int, ...]:
        chat = [{"role": role, "content": content} for role, content in messages]
        return tuple(self._tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=False))
