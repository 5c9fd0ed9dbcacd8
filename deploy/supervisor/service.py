"""What the supervisor needs to know about one part of the product. A value: nothing here starts anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from deploy.supervisor.probes import Probe


@dataclass(frozen=True, kw_only=True)
class Service:
    """``after``: names of the parts that must be up first, and that are stopped after this one.

    ``once``: runs to its end (migrations) instead of staying up. ``probe``: tells when it is ready; None: as soon as it runs.
    ``hung_seconds``: restarted after so long without any answer to the probe (None: never).
    ``cores``: processor numbers it may use (empty: all). ``niceness``: added to the supervisor's own.
    """

    name: str
    title: str
    command: tuple[str, ...]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    probe: Probe | None = None
    once: bool = False
    ready_seconds: float = 60.0
    stop_seconds: float = 12.0
    hung_seconds: float | None = None
    niceness: int = 0
    cores: tuple[int, ...] = ()
