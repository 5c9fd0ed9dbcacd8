"""One private Ray for all tests of this folder that need one; its own directories, ports and process tag."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import settings as engine_settings


@pytest.fixture(scope="session")
def ray_settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[engine_settings.EngineSettings]:
    with tempfile.TemporaryDirectory(prefix="mrl-", dir="/tmp") as runtime:
        yield engine_settings.load(
            state=tmp_path_factory.mktemp("state"),
            runtime=Path(runtime),
            device="cpu",
            train_ranks=2,
            rollout_cores="",
            train_cores="",
            object_store_mb=80,
            call_deadline_seconds=30,
            start_deadline_seconds=60,
        )


@pytest.fixture(scope="session")
def local_ray(ray_settings: engine_settings.EngineSettings) -> Iterator[None]:
    from engine.runtime import reaper
    from engine.runtime.local_ray import LocalRay

    ray_settings.make_dirs()
    started = LocalRay.start(ray_settings, "test-of-runtime")
    yield
    started.stop()
    reaper.sweep("test-of-runtime")
