"""The portal that a load script asks: every process of it real but the engine, up for as long as the measurement takes."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from tests.browser.stack import Stack, free_port


@contextmanager
def stack_up(console: Console, environment: Mapping[str, str] | None = None, **options: Any) -> Iterator[Stack]:
    """``options`` and ``environment`` as ``Stack``'s. Gone afterwards, with its folders."""
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        stack = Stack(Path(folder), port=free_port(), engine_port=free_port(), **options)
        stack.environment |= environment or {}
        try:
            with console.status("starting the portal"):
                stack.start()
            yield stack
        finally:
            stack.stop()
            shutil.rmtree(stack.runtime, ignore_errors=True)
