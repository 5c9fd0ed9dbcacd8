"""A pause that the engine asked for itself (the doctor, too many silent steps) says why, until it goes on."""

from __future__ import annotations

from portal.jobs.lifecycle import Fact, View, advance
from portal.jobs.models import State
from tests.portal.world import NOW

RUNNING = View(state=State.RUNNING, state_reason="", attribution="", version=4, last_seq=9, engine="e", ended_at=None)


def told(view: View, kind: str, **data: object) -> View:
    return advance(view, Fact(kind=kind, at=NOW, data=data, seq=view.last_seq + 1))


def test_the_reason_stays_while_it_is_held() -> None:
    asked = told(RUNNING, "pause_requested", reason="20 steps in a row carried no signal.", code="no_signal")
    held = told(asked, "paused", version=5, reason="20 steps in a row carried no signal.")
    assert (held.state, held.state_reason) == (State.PAUSED, "20 steps in a row carried no signal.")
    assert told(held, "resumed", version=5).state_reason == ""


def test_a_persons_pause_needs_no_reason() -> None:
    asked = told(RUNNING, "pause_requested", reason="pause by alice@example.org")
    assert told(asked, "paused", version=5).state_reason == ""
