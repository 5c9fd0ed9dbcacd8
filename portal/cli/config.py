"""Which site, and with which token: from the environment (``MARL_URL``, ``MARL_TOKEN``), else from the file that ``marl login`` wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

DEFAULT_URL = "http://127.0.0.1:8800"


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    url: str
    token: str


def path(environment: Mapping[str, str] = os.environ) -> Path:
    home = environment.get("XDG_CONFIG_HOME") or Path(environment.get("HOME", "~")).expanduser() / ".config"
    return Path(home) / "marl" / "config.json"


def load(environment: Mapping[str, str] = os.environ) -> Config:
    """``token`` is empty where there is none yet. Raises ``ValueError`` naming what gave an address that is none."""
    try:
        kept = json.loads(path(environment).read_text())
    except (FileNotFoundError, ValueError):
        kept = {}
    given = environment.get("MARL_URL")
    url = address(given, "MARL_URL") if given else address(kept.get("url") or DEFAULT_URL, str(path(environment)))
    return Config(url=url, token=environment.get("MARL_TOKEN") or kept.get("token") or "")


def address(text: str, source: str) -> str:
    """The site at ``text``, without a slash at its end. Raises ``ValueError`` naming ``source``."""
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"{source} has no web address: {text!r}. Give one as in https://ml.example.org")
    return text.rstrip("/")


def save(config: Config, environment: Mapping[str, str] = os.environ) -> Path:
    """Readable by its owner alone."""
    place = path(environment)
    place.parent.mkdir(parents=True, exist_ok=True)
    staged = place.with_name(f".{place.name}.{os.getpid()}")
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump({"url": config.url, "token": config.token}, file)
    os.replace(staged, place)
    return place
