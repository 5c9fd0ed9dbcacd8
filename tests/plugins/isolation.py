"""Tests never touch a real installation: own state folder, own runtime folder, no inherited settings.

Loaded with ``-p`` before Django reads its settings. The stage that tests PostgreSQL names its database in
``MARLAAS_TEST_DATABASE_URL``; a ``DATABASE_URL`` of the shell that runs the tests is never used.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

INHERITED = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE")


def _isolate() -> Path:
    for name in list(os.environ):
        if name in INHERITED or (name.startswith("MARLAAS_") and not name.startswith("MARLAAS_TEST_")):
            del os.environ[name]
    folder = Path(tempfile.mkdtemp(prefix="mt-"))  # short: Unix socket paths end at 107 bytes
    os.environ["MARLAAS_STATE"] = str(folder / "var")
    os.environ["MARLAAS_RUNTIME"] = str(folder / "run")
    for made in ("var", "run"):
        (folder / made).mkdir(mode=0o700)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if url := os.environ.get("MARLAAS_TEST_DATABASE_URL"):
        os.environ["DATABASE_URL"] = url
    return folder


FOLDER = _isolate()
_OWNER = os.getpid()


def pytest_unconfigure() -> None:
    # A forked child that ends through pytest's code must not take its parent's folder away.
    if os.getpid() == _OWNER:
        shutil.rmtree(FOLDER, ignore_errors=True)
