from __future__ import annotations

from io import StringIO

from rich.console import Console

from engine.bench.progress import Screen
from tests.engine.bench.runs import job, run, step


def test_where_nobody_watches_each_run_leaves_one_line():
    written = StringIO()
    screen = Screen(Console(file=written, width=20), clock=iter([10.0, 14.5]).__next__)

    with screen.shown(1), screen.run("marlaas, round 1", 3) as show:
        show(run(job("a", step(1, 0, 0, 1, 0, 1, 0), wanted=3)))
    screen.stage("replaying [all] of it in one saturated batch…")

    assert [" ".join(line.split()) for line in written.getvalue().splitlines()] == [
        "marlaas, round 1 1 of 3 steps in 4.5 s",
        "replaying [all] of it in one saturated batch…",
    ]
