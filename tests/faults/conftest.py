"""One real engine for all fault tests: tiny-math on vLLM and torch. Each test kills a part of it and expects it whole again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.engine.engines import TestEngine, running_engine


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestEngine]:
    with running_engine(tmp_path_factory.mktemp("state")) as engine:
        yield engine
