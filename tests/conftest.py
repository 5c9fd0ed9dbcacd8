"""Fixtures that any test may use. What belongs to one part lives in that part's own conftest."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives a TCP port on the loopback address that nothing listens on, another one at each call."""
    given: set[int] = set()

    def pick() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            if port not in given:
                given.add(port)
                return port

    return pick
