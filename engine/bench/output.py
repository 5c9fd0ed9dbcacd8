"""Where a measurement goes: to standard output and, whole or not at all, into a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from engine.durable import make_directory, replace_file


def put_json(figures: Any, path: Path | None) -> None:
    text = json.dumps(figures, indent=2) + "\n"
    print(text, end="")
    if path is not None:
        make_directory(path.resolve().parent)
        replace_file(path, text.encode())
