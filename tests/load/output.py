"""What each load script does with its figures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console


def tell(found: dict[str, Any], path: Path | None, console: Console) -> int:
    """Print ``found`` and write it to ``path``. The exit status: 0 when ``found["holds"]``."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=2) + "\n")
    console.print_json(data=found)
    return 0 if found["holds"] else 1
