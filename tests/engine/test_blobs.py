from __future__ import annotations

import hashlib

import pytest

from engine.blobs import BlobCorrupt, BlobMissing, BlobStore
from engine.spec import BlobRef


def test_a_blob_is_named_by_its_content(tmp_path):
    ref = BlobStore(tmp_path).put(b"rows")
    assert (ref.sha256, ref.bytes) == (hashlib.sha256(b"rows").hexdigest(), 4)
    assert (tmp_path / ref.sha256[:2] / ref.sha256).read_bytes() == b"rows"


def test_a_file_is_stored_like_its_bytes(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"rows")
    store = BlobStore(tmp_path / "blobs")
    assert store.put(source) == store.put(b"rows")
    with store.open(store.put(source)) as file:
        assert file.read() == b"rows"


def test_a_missing_blob_is_named(tmp_path):
    ref = BlobRef(sha256="0" * 64, bytes=1)
    with pytest.raises(BlobMissing, match="0000"):
        BlobStore(tmp_path).path(ref)


def test_changed_bytes_are_refused_on_first_access(tmp_path):
    ref = BlobStore(tmp_path).put(b"rows")
    (tmp_path / ref.sha256[:2] / ref.sha256).write_bytes(b"ROWS")
    with pytest.raises(BlobCorrupt):
        BlobStore(tmp_path).open(ref)


def test_a_reference_with_another_size_is_refused(tmp_path):
    ref = BlobStore(tmp_path).put(b"rows")
    with pytest.raises(BlobCorrupt):
        BlobStore(tmp_path).path(BlobRef(sha256=ref.sha256, bytes=5))


def test_a_put_leaves_no_staging_file(tmp_path):
    BlobStore(tmp_path).put(b"rows")
    assert list(tmp_path.glob("staging-*")) == []


def test_the_sweep_takes_only_old_leftovers(tmp_path):
    store = BlobStore(tmp_path)
    (tmp_path / "staging-x").write_bytes(b"half")
    written = (tmp_path / "staging-x").stat().st_mtime
    assert store.sweep(older_than=written) == 0
    assert store.sweep(older_than=written + 1) == 1
