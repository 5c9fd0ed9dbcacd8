from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from deploy.supervisor.progress import LiveDisplay, PlainDisplay, console_for
from deploy.supervisor.runner import Runner, State
from deploy.supervisor.service import Service


def runner(changed: Callable[[Runner], None], state: State, note: str = "") -> Runner:
    made = Runner(Service(name="web", title="Pages", command=("true",), log=Path("/logs/web.log")), cwd=Path(), changed=changed)
    made.state, made.note = state, note
    return made


def test_without_a_terminal_each_change_is_one_line_said_once():
    out = io.StringIO()
    display = PlainDisplay(Console(file=out, width=160), Path("/logs"))
    for state, note in [(State.STARTING, ""), (State.STARTING, "loading"), (State.STARTING, "loading"), (State.READY, "")]:
        display.changed(runner(display.changed, state, note))
    assert [line.partition("] ")[2] for line in out.getvalue().splitlines()] == ["web: starting", "web: starting (loading)", "web: ready"]


def test_on_a_terminal_the_table_says_which_part_does_what_and_where_the_logs_are():
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    display = LiveDisplay(console, Path("/logs"))
    display.start([runner(display.changed, State.STARTING, "loading the base model")])
    display.stop()
    shown = console.file.getvalue()
    assert all(text in shown for text in ("Pages", "starting", "loading the base model", "logs in /logs"))


def test_once_up_only_what_goes_wrong_is_said():
    console = Console(file=io.StringIO(), force_terminal=True, width=160)
    display = LiveDisplay(console, Path("/logs"))
    display.changed(runner(display.changed, State.READY))
    display.changed(runner(display.changed, State.RESTARTING, "ended by SIGKILL; again in 0.5 s"))
    said = console.file.getvalue()
    assert "ended by SIGKILL" in said and "/logs/web.log" in said and "ready" not in said


def test_a_pipe_gets_room_for_whole_lines():
    assert console_for(io.StringIO()).width == 160
