from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from deploy.supervisor import post

LINK = "http://127.0.0.1:8800/accounts/confirm/a1:b2/"


def filed(folder: Path, name: str = "1.log", *, to: str = "ada@example.org", end: bytes = b"\n" + b"-" * 79 + b"\n") -> None:
    """As Django's filebased backend files it."""
    text = f"Subject: Confirm\nFrom: MARLaaS <m@localhost>\nTo: {to}\nContent-Type: text/plain; charset=utf-8\n\nOpen\n\n{LINK}\n"
    with (folder / name).open("ab") as file:
        file.write(text.encode() + end)


def test_only_letters_that_come_later_are_told_and_each_once(tmp_path):
    filed(tmp_path, "old.log")
    box = post.Letterbox(tmp_path)
    filed(tmp_path, "new.log")
    filed(tmp_path, "new.log", to="bob@example.org")

    assert [(letter.to, letter.subject, letter.links) for letter in box.fresh()] == [
        ("ada@example.org", "Confirm", (LINK,)),
        ("bob@example.org", "Confirm", (LINK,)),
    ]
    assert box.fresh() == []


def test_a_letter_that_is_still_being_written_waits_for_its_end(tmp_path):
    box = post.Letterbox(tmp_path)
    filed(tmp_path, end=b"")
    assert box.fresh() == []
    filed(tmp_path, to="bob@example.org")
    assert len(box.fresh()) == 1


def test_a_folder_that_is_not_there_yet_holds_nothing(tmp_path):
    assert post.Letterbox(tmp_path / "mail").fresh() == []


@pytest.mark.parametrize("terminal", [True, False])
def test_what_opens_an_account_is_shown_on_a_terminal_and_kept_out_of_logs(tmp_path, terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=160)
    post.say(post.Letter(to="ada@example.org", subject="[Confirm]", links=(LINK,), file=tmp_path / "1.log"), console)

    shown = console.file.getvalue()
    assert "ada@example.org" in shown
    assert (LINK in shown, str(tmp_path / "1.log") in shown) == (terminal, not terminal)


def test_a_name_with_escape_sequences_does_nothing_to_the_terminal(tmp_path):
    console = Console(file=io.StringIO(), width=160)
    post.say(post.Letter(to="ada@example.org", subject="Join \x1b]0;owned\x07 \x9b2J", links=(), file=tmp_path / "1.log"), console)

    assert not {"\x1b", "\x07", "\x9b"} & set(console.file.getvalue())


async def test_letters_are_told_while_the_site_runs(tmp_path):
    console = Console(file=(out := io.StringIO()), width=160)
    async with post.told(tmp_path, console, look_seconds=0):
        filed(tmp_path)
        await _until(lambda: "ada@example.org" in out.getvalue())


async def _until(holds) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0)
