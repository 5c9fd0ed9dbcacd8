"""The lifecycle's table, held against an independent one: every state × every kind."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from engine.events import KINDS
from portal.jobs import lifecycle
from portal.jobs.lifecycle import Fact, IllegalTransition, LostRace, View, advance
from portal.jobs.models import Job, State
from tests.portal.world import NOW, World

FINAL = ("succeeded", "failed", "cancelled")
WORK = ("admitted", "rollout_started", "rollout_ready", "train_started", "step")
STAY = ("waiting", "rollout_lost", "train_lost", "pause_requested", "stop_requested", "priority")
MOVERS = ("accepted", *WORK, *STAY, "paused", "resumed", "ended")
FREE = (*sorted(set(KINDS) - set(MOVERS)), "a_kind_of_next_year")

# What follows: state → kind → next state. What is not here is illegal.
EXPECTED: dict[str, dict[str, str]] = {
    "submitted": {"accepted": "queued"},
    "queued": {**dict.fromkeys(WORK, "running"), **dict.fromkeys(STAY, "queued"), "paused": "paused", "resumed": "queued"},
    "running": {**dict.fromkeys(WORK, "running"), **dict.fromkeys(STAY, "running"), "paused": "paused", "resumed": "running"},
    "paused": {**dict.fromkeys(WORK, "paused"), **dict.fromkeys(STAY, "paused"), "paused": "paused", "resumed": "queued"},
    **{state: {} for state in FINAL},
}
ENDS = {
    "submitted": {"failed", "cancelled"},
    "queued": {"failed", "cancelled"},
    "running": {"succeeded", "failed", "cancelled"},
    "paused": {"failed", "cancelled"},
    **{state: set() for state in FINAL},
}


def view(state: str, **values) -> View:
    blank = {"state_reason": "", "attribution": "", "version": 0, "last_seq": 3, "engine": "", "ended_at": None}
    return View(state=state, **{**blank, **values})


def fact(kind: str, **data) -> Fact:
    return Fact(kind=kind, at=NOW, data=data, seq=4, engine="e1")


@pytest.mark.parametrize("kind", [kind for kind in MOVERS if kind != "ended"])
@pytest.mark.parametrize("state", EXPECTED)
def test_each_kind_moves_each_state_as_designed(state: str, kind: str) -> None:
    if (target := EXPECTED[state].get(kind)) is None:
        with pytest.raises(IllegalTransition):
            advance(view(state), fact(kind))
    else:
        assert advance(view(state), fact(kind)).state == target


@pytest.mark.parametrize("outcome", [*FINAL, "exploded", None])
@pytest.mark.parametrize("state", ENDS)
def test_each_ending_is_reached_from_where_it_may(state: str, outcome: str | None) -> None:
    if outcome in ENDS[state]:
        assert advance(view(state), fact("ended", state=outcome)).state == outcome
    else:
        with pytest.raises(IllegalTransition):
            advance(view(state), fact("ended", state=outcome))


@pytest.mark.parametrize("kind", FREE)
@pytest.mark.parametrize("state", EXPECTED)
def test_kinds_that_mean_no_move_are_only_counted(state: str, kind: str) -> None:
    assert advance(view(state), fact(kind)) == view(state, last_seq=4)


def test_an_ending_says_why_whose_doing_and_when() -> None:
    after = advance(view("running"), fact("ended", state="failed", reason="row 3: no answer", attribution="reward"))
    assert (after.state_reason, after.attribution, after.ended_at) == ("row 3: no answer", "reward", NOW)


def test_a_step_raises_the_version() -> None:
    assert advance(view("running", version=4), fact("step", version=5)).version == 5


def test_the_reason_of_waiting_is_kept_until_the_job_runs() -> None:
    waiting = advance(view("queued"), fact("waiting", reason="2 jobs are ahead"))
    assert waiting.state_reason == "2 jobs are ahead"
    assert advance(waiting, fact("admitted")).state_reason == ""


def test_a_job_remembers_the_engine_that_took_it() -> None:
    assert advance(view("submitted"), fact("accepted")).engine == "e1"


def test_a_write_that_comes_too_late_is_lost(world: World) -> None:
    job = world.job()
    before = View.of(job)
    Job.objects.filter(pk=job.pk).update(last_seq=9)
    with pytest.raises(LostRace):
        lifecycle.write(job, before, advance(before, fact("accepted")))
    assert Job.objects.get(pk=job.pk).state == State.SUBMITTED


def test_nobody_else_writes_a_jobs_state() -> None:
    """Walks the portal's code for ``state=`` in updates and ``.state =`` assignments."""
    files = [path for path in Path("portal").rglob("*.py") if "migrations" not in path.parts]
    others = ("datasets/uploads.py", "rewards/lab.py", "rewards/probes.py", "openai/chats.py", "billing/topups.py", "cli/watching.py")
    own = {Path("portal", name) for name in others}  # of other records, and what the command line has heard
    assert {path for path in files if _writes_state(path)} <= {Path("portal/jobs/lifecycle.py"), *own}


def _writes_state(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text())):
        called = getattr(node.func, "attr", "") if isinstance(node, ast.Call) else ""
        if called in ("update", "aupdate", "create", "acreate", "update_or_create") and any(k.arg == "state" for k in node.keywords):
            return True
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Attribute) and t.attr == "state" for t in node.targets):
            return True
    return False
