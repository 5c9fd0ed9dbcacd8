"""Answers that are held to a JSON schema as they are sampled: whether this model's tokenizer allows it, and the parameters for vLLM."""

from __future__ import annotations

import logging
from typing import Any

from llguidance import hf
from vllm.sampling_params import StructuredOutputsParams

log = logging.getLogger(__name__)

# guidance knows the most of JSON Schema, and builds its automaton as it goes. White space between tokens would be a loop without an end.
ENGINE_ARGUMENT = {"backend": "guidance", "disable_any_whitespace": True}


def can_hold(tokenizer: Any, vocabulary: int) -> bool:
    """Tried here, as vLLM's core would try it with the first such request: there a tokenizer of another kind ends the whole engine."""
    try:
        hf.from_tokenizer(tokenizer, max(vocabulary, len(tokenizer)))
    except Exception as error:
        log.warning("answers cannot be held to a schema with this model's tokenizer: %s", error)
        return False
    return True


def held_to(schema: str) -> StructuredOutputsParams:
    return StructuredOutputsParams(json=schema)
