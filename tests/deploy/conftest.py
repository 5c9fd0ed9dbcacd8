"""A switchboard that dummy parts call: it sees each one come up, can crash it, and sees it die. No polling, every wait has a deadline."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from deploy.supervisor.service import Service

DUMMY = Path(__file__).with_name("dummy.py")
DEADLINE_SECONDS = 30.0


class Switchboard:
    def __init__(self, folder: Path):
        self.address = str(folder / "calls")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.address)
        self._listener.listen(64)
        self._listener.settimeout(DEADLINE_SECONDS)
        self._lines: dict[str, list[socket.socket]] = {}

    def came_up(self, name: str) -> None:
        """Wait for the next call of ``name`` (calls of others that come meanwhile are kept)."""
        while not self._lines.get(name):
            line, _ = self._listener.accept()
            line.settimeout(DEADLINE_SECONDS)
            with line.makefile() as text:
                self._lines.setdefault(text.readline().strip(), []).append(line)

    def crash(self, name: str, status: int = 1) -> None:
        self._lines[name][0].sendall(bytes([status]))

    def died(self, name: str) -> None:
        """Wait until ``name`` is gone; fails with a timeout if it stays."""
        with self._lines[name].pop(0) as line:
            assert line.recv(1) == b""

    def hang_up(self) -> None:
        self._listener.close()
        for lines in self._lines.values():
            for line in lines:
                line.close()


@pytest.fixture
def short_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mt-") as folder:
        yield Path(folder)


@pytest.fixture
def switchboard(short_folder: Path) -> Iterator[Switchboard]:
    board = Switchboard(short_folder)
    yield board
    board.hang_up()


@pytest.fixture
def dummy(switchboard: Switchboard, short_folder: Path) -> Callable[..., Service]:
    def make(name: str, manner: str = "stay", **changes: object) -> Service:
        command = (sys.executable, "-S", str(DUMMY), switchboard.address, name, manner)
        return Service(
            **{"name": name, "title": name, "command": command, "log": short_folder / f"{name}.log", "stop_seconds": 1.0, **changes}
        )

    return make
