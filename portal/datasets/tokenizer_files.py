"""A base model's tokenizer: the engine's own file, kept on disk, and how it counts."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import structlog
from django.conf import settings
from django.utils import timezone

from portal import gateway
from portal.datasets.lengths import Count, Ruler
from portal.env import ROOT
from portal.jobs import catalog, engines

log = structlog.get_logger(__name__)
MAX_BYTES = 64 << 20


class NoTokenizer(LookupError):
    """The tokenizer of a model cannot be had now; the text says why and what to do."""


def ruler(model: str) -> Ruler:
    """How ``model``, one of the engine's, counts, and its context. Raises ``NoTokenizer``."""
    limit = next((info.max_context_tokens for info in catalog.known_models(timezone.now()) if info.name == model), None)
    return Ruler(model=model, count=counter(tokenizer_path(model)), limit=limit)


def local_ruler(model: str) -> Ruler:
    """The same without a database, for the command line: ``model`` may be a directory. Raises ``NoTokenizer``."""
    home = Path(model) / "tokenizer.json"
    path = home if home.is_file() else tokenizer_path(model)
    return Ruler(model=model, count=counter(path), limit=_limit(model, path))


def _limit(model: str, path: Path) -> int | None:
    """As the engine says, or as the configuration beside the tokenizer does."""
    try:
        return next((info["max_context_tokens"] for info in engines.serving(model).models() if info["name"] == model), None)
    except (gateway.EngineDown, gateway.EngineRefused):
        places = [folder / "config.json" for folder in (path.parent, *(place.parent for place in _local(model)))]
        found = next((place for place in places if place.is_file()), None)
        return json.loads(found.read_text()).get("max_position_embeddings") if found else None


def tokenizer_path(model: str) -> Path:
    """The file, asked of the engine; while it is down the one it gave before, or one that lies on this machine."""
    kept = settings.STATE / "tokenizers" / f"{hashlib.sha256(model.encode()).hexdigest()[:32]}.json"
    try:
        _keep(kept, engines.serving(model).tokenizer(model))
        return kept
    except gateway.EngineRefused as error:
        raise NoTokenizer(f"the engine has no model {model[:80]}: {error}") from None
    except gateway.EngineDown as error:
        log.info("tokenizer_without_engine", model=model, reason=str(error))
    places = [kept, *_local(model)]
    if found := next((path for path in places if path.is_file()), None):
        return found
    raise NoTokenizer(f"the engine does not answer, and no tokenizer of {model[:80]} lies here; try again when the engine is up")


def counter(path: Path) -> Count:
    """Counts tokens of texts with the tokenizer in ``path``. Raises ``NoTokenizer`` for a file that is none."""
    status = path.stat()
    return _counter(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _counter(path: Path, changed: int, size: int) -> Count:
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # its threads do not survive a fork
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise NoTokenizer(f"{path.name} is no tokenizer: {str(error)[:200]}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]

    return count


def _keep(path: Path, content: bytes) -> None:
    if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{path.name}.{os.getpid()}")
    staged.write_bytes(content)
    staged.replace(path)


def _local(model: str) -> list[Path]:
    """Where the embedded engine keeps models, fetched and bundled."""
    homes = [settings.STATE / "models" / model.replace("/", "--"), ROOT / "engine" / "models" / model.replace("-", "_").replace("/", "-")]
    return [home / "tokenizer.json" for home in homes]
