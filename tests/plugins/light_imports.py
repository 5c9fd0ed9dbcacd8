"""For the unit stage: whoever imports Ray, torch, vLLM, Celery or their kin gets an ImportError that says so."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

HEAVY = frozenset({"ray", "torch", "vllm", "transformers", "peft", "safetensors", "celery", "django", "channels"})


class Refuser(MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name.partition(".")[0] in HEAVY:
            raise ImportError(f"a unit test imports {name}; mark it (engine, stack …) or keep the import out of this module")
        return None


if loaded := sorted(HEAVY & sys.modules.keys()):
    raise ImportError(f"loaded before the unit tests began: {', '.join(loaded)}")
sys.meta_path.insert(0, Refuser())
