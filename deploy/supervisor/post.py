"""Mail of an installation that sends none: Django files it in a folder, and who runs the site reads it in the terminal."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path

from rich.console import Console

LOOK_SECONDS = 1.0
# What Django's filebased backend writes behind each message.
_END = b"\n" + b"-" * 79 + b"\n"
_LINK = re.compile(r"https?://\S+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    to: str
    subject: str
    links: tuple[str, ...]
    file: Path


class Letterbox:
    """``fresh()``: the letters that came since it was last asked, or since it was made. A letter that is still being written waits."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._read: dict[Path, int] = {path: path.stat().st_size for path in self._files()}

    def fresh(self) -> list[Letter]:
        return [letter for path in self._files() for letter in self._new_in(path)]

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("*.log"))

    def _new_in(self, path: Path) -> list[Letter]:
        begin = self._read.get(path, 0)
        if path.stat().st_size == begin:
            return []
        with path.open("rb") as file:
            file.seek(begin)
            whole, end, _ = file.read().rpartition(_END)
        self._read[path] = begin + len(whole) + len(end)
        return [_letter(data, path) for data in whole.split(_END)] if end else []


def _letter(data: bytes, path: Path) -> Letter:
    message = message_from_bytes(data, _class=EmailMessage, policy=default)
    body = message.get_body(("plain",))
    text = body.get_content() if body is not None else ""
    return Letter(to=message["to"] or "", subject=message["subject"] or "", links=tuple(_LINK.findall(text)), file=path)


@contextlib.asynccontextmanager
async def told(folder: Path, console: Console, *, look_seconds: float = LOOK_SECONDS) -> AsyncIterator[None]:
    """While inside, each new letter in ``folder`` is said on ``console``, with its links where that is a terminal: what they open is
    a secret, which a log must not keep.
    """
    task = asyncio.create_task(_tell(Letterbox(folder), lambda letter: say(letter, console), look_seconds))
    try:
        yield
    finally:
        task.cancel()


def say(letter: Letter, console: Console) -> None:
    where = letter.links if console.is_terminal and letter.links else (str(letter.file),)
    lines = (f"Mail to {letter.to}: {letter.subject}", *(f"  {place}" for place in where))
    console.print(*map(_printable, lines), sep="\n", markup=False, soft_wrap=True)


def _printable(text: str) -> str:
    """Subjects hold names that tenants choose: an escape sequence in one must not reach the operator's terminal."""
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


async def _tell(box: Letterbox, tell: Callable[[Letter], None], look_seconds: float) -> None:
    while True:
        for letter in await asyncio.to_thread(box.fresh):
            tell(letter)
        await asyncio.sleep(look_seconds)
