"""After a restore of either side: what differs is named, and what needs nobody's decision is set right."""

from __future__ import annotations

import io

import httpx
import pytest
from django.core.management import CommandError, call_command

from portal import gateway
from portal.billing import ledger
from portal.jobs import compare, delivery
from portal.jobs.compare import Finding, Row, Status, look
from portal.jobs.live import events_after
from portal.jobs.models import EngineCursor, Job, JobEvent, State
from tests.portal.billing.books import STEP_MICROS, Run, account, billed
from tests.portal.fake_engine import FakeEngine
from tests.portal.jobs.test_ingest import Pulls
from tests.portal.world import NOW, World


def status(*jobs: tuple[str, str, int], began: int = 100) -> Status:
    lines = [{"job": job, "state": state, "began_seq": seq} for job, state, seq in jobs]
    return Status.parse({"engine": "e", "epoch": 7, "journal": {"last": 120, "began": began}, "jobs": lines})


def row(job: str = "a", state: str = State.RUNNING, last_seq: int = 5, taken: bool = True) -> Row:
    return Row(job=job, state=state, last_seq=last_seq, taken=taken)


# what differs


def test_two_sides_of_the_same_moment_differ_in_nothing() -> None:
    rows = [row("a"), row("b", State.SUBMITTED), row("c", State.SUCCEEDED), row("d", State.SUBMITTED, taken=False)]
    told = status(("a", "running", 5), ("b", "queued", 1), ("c", "succeeded", 9))
    assert look(rows, told, went_back=False) == look(rows, told, went_back=True) == []


@pytest.mark.parametrize(
    ("rows", "jobs", "went_back", "kind"),
    [
        (row(state=State.SUBMITTED), [], False, "resend"),
        (row(state=State.PAUSED), [], False, "lost"),
        (row(last_seq=6), [("a", "running", 5)], True, "rewind"),
        (row(state=State.SUCCEEDED, last_seq=9), [("a", "running", 5)], True, "again"),
        (row(state=State.CANCELLED, last_seq=9), [("a", "queued", 5)], True, "stop"),
        (row(state=State.FAILED, last_seq=9), [("a", "paused", 5)], True, "stop"),
        (None, [("a", "running", 5)], False, "stranger"),
    ],
)
def test_each_difference_has_its_name(rows: Row | None, jobs: list, went_back: bool, kind: str) -> None:
    assert look([rows] if rows else [], status(*jobs), went_back=went_back) == [Finding(kind=kind, job="a")]


def test_an_ended_job_that_nobody_has_is_no_matter() -> None:
    assert look([], status(("a", "failed", 5)), went_back=False) == []


def test_rows_ahead_of_where_a_running_epoch_began_are_no_sign_of_a_restore() -> None:
    assert look([row(last_seq=50)], status(("a", "running", 5)), went_back=False) == []


@pytest.mark.parametrize(
    "answer", [{}, {"engine": "e", "epoch": 1, "jobs": []}, {"engine": "e", "epoch": 1, "jobs": None, "journal": {"began": 0}}]
)
def test_a_status_of_an_older_engine_is_refused(answer: dict) -> None:
    with pytest.raises(compare.BadStatus):
        Status.parse(answer)


# what is done


@pytest.fixture
def pulls(world: World, engine: FakeEngine) -> Pulls:
    pulls = Pulls(engine)
    pulls.pull()
    return pulls


@pytest.fixture
def run(world: World, engine: FakeEngine, pulls: Pulls) -> Run:
    """A job of two committed steps, billed."""
    account(world.sums, 100_000_000)
    run = Run(world, engine)
    for version in (1, 2):
        run.tell("rollout_started", version=version - 1, attempt=1)
        run.ready(version - 1)
        run.step(version)
    pulls.pull()
    run.job.refresh_from_db()
    assert (run.job.version, run.job.last_seq, run.bill()) == (2, 7, billed(1) | billed(2))
    return run


def test_an_engine_restored_to_an_older_moment_goes_on_and_nothing_is_billed_twice(run: Run, pulls: Pulls, engine: FakeEngine) -> None:
    engine.restart(lose=2)  # in the midst of step 2: its rollout had begun
    run.tell("rollout_started", version=1, attempt=2)
    run.ready(1, 2)
    pulls.pull(2)
    run.job.refresh_from_db()
    assert (run.job.state, run.job.version) == (State.RUNNING, 1)
    run.step(2, 2)
    run.step(3)
    run.tell("ended", state="succeeded", reason="", attribution="user")
    pulls.pull()
    run.job.refresh_from_db()
    assert (run.job.state, run.job.version) == (State.SUCCEEDED, 3)
    assert [event["seq"] for event in events_after(run.job, 0)] == list(range(1, 11))
    assert run.bill() == billed(1) | billed(2) | billed(2, 2, free=("prefill", "cached_prefill", "sampled", "trained")) | billed(3)
    assert run.account.balance_micros == 100_000_000 - 3 * STEP_MICROS
    assert ledger.audit(run.job.tenant).sound and run.hold.micros == 0
    assert EngineCursor.objects.get().offset == len(engine.journal)


def test_watchers_of_a_rewound_job_are_told(run: Run, pulls: Pulls, engine: FakeEngine) -> None:
    engine.restart(lose=2)
    pulls.announced.clear()
    pulls.pull()
    assert pulls.announced == [(run.job.group, 5)]


def test_an_engine_that_merely_restarts_changes_nothing(run: Run, pulls: Pulls, engine: FakeEngine) -> None:
    run.tell("rollout_started", version=2, attempt=1)  # not pulled before the restart
    engine.restart()
    run.tell("rollout_started", version=2, attempt=2)
    pulls.pull()
    assert [event["seq"] for event in events_after(run.job, 0)] == list(range(1, 10))


def test_a_restored_database_reads_again_what_it_lacks_and_bills_it_once(run: Run, pulls: Pulls, engine: FakeEngine) -> None:
    # As the copy had it: one step less on every row of the portal's.
    EngineCursor.objects.update(offset=4)
    JobEvent.objects.filter(seq__gt=4).delete()
    Job.objects.update(version=1, last_seq=4)
    engine.restart()
    pulls.pull()
    run.job.refresh_from_db()
    assert (run.job.version, run.job.last_seq, run.bill()) == (2, 7, billed(1) | billed(2))
    assert ledger.audit(run.job.tenant).sound


def test_a_job_that_is_younger_than_the_engines_backup_ends_with_the_reason_and_frees_its_hold(
    run: Run, pulls: Pulls, engine: FakeEngine
) -> None:
    engine.restart(lose=len(engine.journal))
    pulls.pull()
    run.job.refresh_from_db()
    assert (run.job.state, run.job.attribution) == (State.FAILED, "platform")
    assert "restored" in run.job.state_reason
    assert run.hold.micros == 0 and run.bill() == billed(1) | billed(2)


def test_a_job_that_the_restored_engine_has_not_heard_of_is_sent_again(world: World, pulls: Pulls, engine: FakeEngine) -> None:
    job = world.job()
    job.submission.answered_at = NOW
    job.submission.save()
    engine.restart()
    engine.jobs.clear()
    pulls.pull()
    job.submission.refresh_from_db()
    assert job.submission.answered_at is None


def test_a_job_that_had_been_cancelled_is_cancelled_in_the_restored_engine(run: Run, pulls: Pulls, engine: FakeEngine) -> None:
    run.tell("ended", state="cancelled", reason="on request", attribution="user")
    pulls.pull()
    engine.restart(lose=1)
    pulls.pull()
    assert engine.journal[-1]["kind"] == "stop_requested"
    run.job.refresh_from_db()
    assert run.job.state == State.CANCELLED


def test_what_is_found_is_mended_once(run: Run, pulls: Pulls, engine: FakeEngine) -> None:
    engine.restart(lose=2)
    told = Status.parse(gateway.engine().status())
    assert [finding.kind for finding in compare.mend(told, compare.taken(), NOW).findings] == ["rewind"]
    assert compare.mend(told, compare.taken(), NOW).findings == []


def test_what_the_engine_took_after_it_was_asked_is_not_missed(world: World, engine: FakeEngine, pulls: Pulls) -> None:
    before, told = compare.taken(), Status.parse(gateway.engine().status())
    job = world.job()
    delivery.deliver(job.pk, NOW)
    assert compare.survey(told, before)[0] == []
    pulls.pull()  # by an older ingester beside
    job.refresh_from_db()
    assert (job.state, compare.survey(told, before)[0]) == (State.QUEUED, [])
    assert [finding.kind for finding in compare.survey(told, compare.taken())[0]] == ["lost"]


def command(*arguments: str) -> tuple[str, int]:
    """What ``compare_engine`` prints, and its exit status."""
    out, code = io.StringIO(), 0
    try:
        call_command("compare_engine", *arguments, stdout=out)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return out.getvalue(), code


def test_operators_are_told_of_a_job_that_no_tenant_has_and_can_end_it(run: Run, engine: FakeEngine) -> None:
    engine.emit("job_of_nobody", "accepted")
    engine.jobs["job_of_nobody"] = {"tenant": "gone"}
    printed, code = command()
    assert code == 1 and "job_of_nobody: the engine has it open" in printed
    assert command("--mend")[1] == 1, "nobody but a person may decide that"
    assert command("--cancel-strangers")[1] == 0
    assert engine.journal[-1]["kind"] == "stop_requested"


def test_nothing_is_printed_but_the_count_when_both_agree(run: Run) -> None:
    assert command() == ("1 jobs in the engine, 0 differences\n", 0)


def test_an_engine_that_is_down_is_said_to_be(run: Run, engine: FakeEngine) -> None:
    engine.down = True
    with pytest.raises(CommandError, match="Nothing was compared"):
        command()


def test_the_stream_goes_on_beside_an_engine_of_an_older_release(run: Run, pulls: Pulls, engine: FakeEngine, monkeypatch) -> None:
    monkeypatch.setattr(engine, "_status", lambda request: httpx.Response(200, json={"engine": engine.engine}))
    run.step(3)
    pulls.pull()
    run.job.refresh_from_db()
    assert run.job.version == 3
