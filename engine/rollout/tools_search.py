"""The ``search`` tool: where it looks (the bundled almanac, an uploaded corpus, an operator's endpoint) and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Protocol

from engine import almanac
from engine.almanac import Article
from engine.blob_spec import BlobRef
from engine.blobs import BlobCorrupt, BlobMissing
from engine.environment_spec import BundledCorpus, SearchEndpoint, SearchSpec, UploadedCorpus
from engine.ports import PortError
from engine.rollout.tools import Tool
from engine.rollout.tools_index import BadCorpus, Index, read_corpus
from engine.rollout.tools_wiki import Wiki

# Indices that are open at once; the others are opened again when they are needed.
OPEN_INDICES = 32


class Endpoint(Protocol):
    async def search(self, words: str, *, results: int) -> list[Article]: ...

    async def close(self) -> None: ...


class Searches:
    """All places that jobs may search. ``blob_path`` raises as ``BlobStore.path`` does; ``folder``: where indices of uploads are kept."""

    def __init__(self, *, blob_path: Callable[[BlobRef], Path], folder: Path, endpoints: Mapping[str, Endpoint]):
        self._blob_path, self._folder, self._endpoints = blob_path, folder, dict(endpoints)
        self._index_of = lru_cache(maxsize=OPEN_INDICES)(self._open)
        self._almanac: Index | None = None

    @classmethod
    def of(cls, *, blob_path: Callable[[BlobRef], Path], folder: Path, endpoints: Mapping[str, str]) -> Searches:
        """``endpoints``: URL by name."""
        return cls(blob_path=blob_path, folder=folder, endpoints={name: Wiki(url) for name, url in endpoints.items()})

    @classmethod
    def bundled(cls) -> Searches:
        """The almanac only."""
        return cls(blob_path=_no_blobs, folder=Path(), endpoints={})

    async def close(self) -> None:
        for endpoint in self._endpoints.values():
            await endpoint.close()

    async def tool(self, spec: SearchSpec) -> Tool:
        """The tool of one job; makes the index of a corpus that is new here. Raises ``PortError``."""
        if isinstance(spec.source, SearchEndpoint):
            return _asking(self._endpoint(spec.source.name), spec.results)
        if isinstance(spec.source, BundledCorpus):
            self._almanac = self._almanac or Index.in_memory(almanac.articles())
            return _looking_up(self._almanac, spec.results)
        return _looking_up(await asyncio.to_thread(self._uploaded, spec.source), spec.results)

    def _endpoint(self, name: str) -> Endpoint:
        if name not in self._endpoints:
            raise PortError(f"the operator lists no search endpoint {name}")
        return self._endpoints[name]

    def _uploaded(self, source: UploadedCorpus) -> Index:
        try:
            return self._index_of(source.blob)
        except BadCorpus as error:
            raise PortError(f"environment.search.source: {error}", attribution="user") from error
        except (BlobMissing, BlobCorrupt) as error:
            raise PortError(str(error)) from error

    def _open(self, ref: BlobRef) -> Index:
        return Index.at(self._folder / f"{ref.sha256}.sqlite", read_corpus(self._blob_path(ref)))


def _asking(endpoint: Endpoint, results: int) -> Tool:
    async def search(words: str) -> str:
        return _told(await endpoint.search(words, results=results))

    return search


def _looking_up(index: Index, results: int) -> Tool:
    async def search(words: str) -> str:
        return _told(await asyncio.to_thread(index.search, words, results=results))

    return search


def _no_blobs(ref: BlobRef) -> Path:
    raise BlobMissing(f"blob {ref.sha256} cannot be read here")


def _told(found: list[Article]) -> str:
    return "\n".join(f"{article.title}: {article.text}" for article in found) or "nothing found"
