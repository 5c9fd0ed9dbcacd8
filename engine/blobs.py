"""Immutable files named by the sha256 of their content: datasets on their way from the portal to the engine.

Standard library and ``engine.spec`` only, so that the portal can use it. One directory, reachable from both sides.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO

from engine.durable import fsync_directory, make_directory
from engine.spec import BlobRef

_CHUNK_BYTES = 1 << 20


class BlobMissing(LookupError):
    """No blob of this name is in the store."""


class BlobCorrupt(RuntimeError):
    """The stored bytes are not those that the name promises."""


class BlobStore:
    """``root/ab/abcdef…``. A name is verified once per store object, on its first access."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        self._verified: set[str] = set()

    def put(self, source: bytes | Path) -> BlobRef:
        """Store ``source`` (content, or a file to copy) durably. The same content twice is one blob."""
        make_directory(self.root)
        descriptor, staged = tempfile.mkstemp(prefix="staging-", dir=self.root)
        try:
            with os.fdopen(descriptor, "wb") as file:
                ref = _copy(source, file)
                file.flush()
                os.fsync(file.fileno())
            self._publish(Path(staged), ref)
        finally:
            Path(staged).unlink(missing_ok=True)
        return ref

    def path(self, ref: BlobRef) -> Path:
        """Where the verified content of ``ref`` lies. Raises ``BlobMissing`` or ``BlobCorrupt``."""
        path = self._place(ref)
        if ref.sha256 not in self._verified:
            _verify(path, ref)
            self._verified.add(ref.sha256)
        elif not path.is_file():
            raise BlobMissing(f"blob {ref.sha256} is not in the store")
        return path

    def open(self, ref: BlobRef) -> BinaryIO:
        """The verified content of ``ref`` as a file open for reading. Raises ``BlobMissing`` or ``BlobCorrupt``."""
        return open(self.path(ref), "rb")

    def sweep(self, *, older_than: float) -> int:
        """Remove what a dead process left half-written before ``older_than`` (UTC epoch seconds); the number of files removed."""
        leftovers = [path for path in self.root.glob("staging-*") if path.stat().st_mtime < older_than]
        for path in leftovers:
            path.unlink(missing_ok=True)
        return len(leftovers)

    def _place(self, ref: BlobRef) -> Path:
        return self.root / ref.sha256[:2] / ref.sha256

    def _publish(self, staged: Path, ref: BlobRef) -> None:
        place = self._place(ref)
        make_directory(place.parent)
        os.chmod(staged, 0o640)
        os.replace(staged, place)
        fsync_directory(place.parent)


def _copy(source: bytes | Path, target: BinaryIO) -> BlobRef:
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(source):
        digest.update(chunk)
        target.write(chunk)
        size += len(chunk)
    return BlobRef(sha256=digest.hexdigest(), bytes=size)


def _chunks(source: bytes | Path):
    if isinstance(source, bytes):
        yield source
        return
    with open(source, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _verify(path: Path, ref: BlobRef) -> None:
    try:
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
    except FileNotFoundError:
        raise BlobMissing(f"blob {ref.sha256} is not in the store") from None
    if (found, size) != (ref.sha256, ref.bytes):
        raise BlobCorrupt(f"blob {ref.sha256} ({ref.bytes} bytes) holds {size} bytes with sha256 {found}")
