from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import async_to_sync
from django.db import OperationalError

from portal.gateway import AsyncGateway, EngineDown, EngineRefused
from portal.jobs import ingest, lifecycle
from portal.jobs.announce import announce_group, announce_reach
from portal.jobs.ingest import BadStream, CursorMoved, Ingester, LostRace, Page
from portal.jobs.live import events_after
from portal.jobs.models import EngineCursor, Job, JobEvent, JobSubmission, State
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World


class Pulls:
    """An ingester driven one pull at a time, and what it announced."""

    def __init__(self, engine: FakeEngine):
        self.engine = engine
        self.announced: list[tuple[str, int]] = []
        self.announce = self._announce

    async def _announce(self, group: str, seq: int) -> None:
        self.announced.append((group, seq))

    def pull(self, times: int = 1) -> int:
        async def run() -> int:
            gateway = AsyncGateway("http://engine", self.engine.secret, self.engine.transport())
            puller = Ingester(gateway=gateway, announce=self.announce, announce_reach=announce_reach, clock=lambda: NOW, wait_seconds=0)
            return sum([await puller.pull() for _ in range(times)])

        return async_to_sync(run)()


@pytest.fixture
def pulls(world: World, engine: FakeEngine) -> Pulls:
    pulls = Pulls(engine)
    pulls.pull()  # meets the engine
    return pulls


@pytest.fixture
def job(world: World, engine: FakeEngine, pulls: Pulls) -> Job:
    """Accepted by the engine; its first event is not pulled yet."""
    job = world.job()
    engine.jobs[job.public_id] = job.submission.body
    engine.emit(job.public_id, "accepted", submission=job.submission.body)
    return job


def seqs(job: Job) -> list[int]:
    return [event["seq"] for event in events_after(job, 0)]


def test_events_become_rows_and_move_the_job(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit(job.public_id, "admitted")
    engine.emit(job.public_id, "step", version=1)
    pulls.pull()
    job.refresh_from_db()
    assert (job.state, job.version, job.last_seq, seqs(job)) == (State.RUNNING, 1, 3, [1, 2, 3])


def test_the_page_is_announced_once_with_the_last_number(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit(job.public_id, "admitted")
    pulls.pull(2)
    assert pulls.announced == [(f"job.{job.public_id}", 2)]


def test_unknown_kinds_are_kept_as_they_came(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit(job.public_id, "novelty", shape=[1, {"x": None}])
    pulls.pull()
    assert job.events.get(seq=2).data == {"shape": [1, {"x": None}]}


def test_a_page_delivered_twice_is_stored_once(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit(job.public_id, "step", version=1)
    pulls.pull()
    EngineCursor.objects.update(offset=0)  # a restored backup, a lost answer
    pulls.pull()
    assert seqs(job) == [1, 2]
    assert EngineCursor.objects.get().offset == 2


def test_two_ingesters_store_a_page_once(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    page = Page.parse({"engine": engine.engine, "epoch": 1, "events": engine.journal, "last": 1})
    ingest.store(page, 0, NOW)
    with pytest.raises(CursorMoved):
        ingest.store(page, 0, NOW)
    assert seqs(job) == [1]


def test_a_crash_before_the_commit_leaves_no_row_and_no_move(pulls: Pulls, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle, "write", die)
    with pytest.raises(KeyboardInterrupt):
        pulls.pull()
    monkeypatch.undo()
    assert (seqs(job), EngineCursor.objects.get().offset) == ([], 0)
    pulls.pull()
    assert (seqs(job), EngineCursor.objects.get().offset) == ([1], 1)


def test_a_lost_announcement_loses_no_event(pulls: Pulls, job: Job, settings, caplog: pytest.LogCaptureFixture) -> None:
    settings.CHANNEL_LAYERS = {"default": {"BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer", "CONFIG": {"hosts": ["unix:///no"]}}}
    pulls.announce = announce_group
    pulls.pull()
    assert seqs(job) == [1]
    assert "announcement_lost" in caplog.text


def test_a_long_history_comes_page_by_page(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    for _ in range(2500):
        engine.emit(job.public_id, "novelty")
    assert pulls.pull(4) == 2501
    assert JobEvent.objects.filter(job=job).count() == 2501


def test_an_illegal_event_is_stored_and_does_not_stop_the_stream(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit(job.public_id, "accepted")
    engine.emit(job.public_id, "admitted")
    pulls.pull()
    job.refresh_from_db()
    assert (job.state, seqs(job)) == (State.RUNNING, [1, 2, 3])


def test_events_of_jobs_that_are_not_ours_are_passed_over(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit("job_of_the_demo", "accepted")
    engine.emit("", "policy")
    engine.emit(job.public_id, "admitted")
    pulls.pull()
    assert (JobEvent.objects.count(), EngineCursor.objects.get().offset) == (2, 4)


def test_what_postgres_cannot_store_is_cleaned(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    engine.emit(job.public_id, "warning", message="a\x00b", value=float("nan"), deep=[float("inf"), "\ud800"])
    page = Page.parse({"engine": engine.engine, "epoch": 1, "events": engine.journal, "last": 2})
    ingest.store(page, 0, NOW)
    assert job.events.get(seq=2).data == {"message": "a\ufffdb", "value": None, "deep": [None, "?"]}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"engine": "e", "epoch": 1, "events": [{}], "last": 1},
        {"engine": "e", "epoch": 1, "events": None, "last": 1},
        {"engine": "e", "epoch": "x", "events": [], "last": 1},
    ],
)
def test_an_answer_outside_the_contract_is_refused_whole(answer: dict) -> None:
    with pytest.raises(BadStream):
        Page.parse(answer)


def test_offsets_out_of_order_are_refused(engine: FakeEngine) -> None:
    events = [engine.emit("a", "x"), engine.emit("a", "y")]
    with pytest.raises(BadStream):
        Page.parse({"engine": "e", "epoch": 1, "events": events[::-1], "last": 2})


def test_a_journal_that_went_back_is_noticed(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    pulls.pull()
    engine.journal.clear()
    with pytest.raises(BadStream, match="went back"):
        pulls.pull()


def replace_engine(engine: FakeEngine) -> None:
    engine.engine, engine.journal, engine.jobs = "second", [], {}


def test_a_new_engine_is_read_from_its_beginning(pulls: Pulls, world: World, job: Job, engine: FakeEngine) -> None:
    pulls.pull()
    replace_engine(engine)
    second = world.job()
    engine.emit(second.public_id, "accepted")
    pulls.pull(2)
    assert {c.engine: (c.offset, c.current) for c in EngineCursor.objects.all()}["second"] == (1, True)
    assert seqs(second) == [1]


def test_jobs_of_a_replaced_engine_end_with_the_reason(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    pulls.pull()
    replace_engine(engine)
    pulls.pull()
    job.refresh_from_db()
    assert (job.state, job.attribution) == (State.FAILED, "platform")
    assert "new" in job.state_reason
    assert [event["kind"] for event in events_after(job, 0)] == ["accepted", "ended"]
    assert pulls.announced[-1] == (f"job.{job.public_id}", 2)


def test_a_job_that_the_old_engine_never_reported_is_sent_to_the_new_one(pulls: Pulls, world: World, engine: FakeEngine) -> None:
    job = world.job()
    JobSubmission.objects.filter(job=job).update(answered_at=NOW)
    replace_engine(engine)
    pulls.pull()
    assert JobSubmission.objects.get(job=job).answered_at is None


def test_an_engine_that_comes_back_goes_on_at_its_cursor(pulls: Pulls, job: Job, engine: FakeEngine) -> None:
    pulls.pull()
    first, journal = engine.engine, engine.journal
    replace_engine(engine)
    pulls.pull()
    engine.engine, engine.journal = first, journal
    pulls.pull(2)
    assert EngineCursor.objects.get(current=True).offset == 1


FAILURES = [
    EngineDown("gone"),
    EngineRefused(404, "no"),
    BadStream("odd"),
    CursorMoved("late"),
    LostRace("late"),
    OperationalError("locked"),
]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
async def test_the_ingester_outlives_every_failure_that_may_pass(failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 7:
            raise asyncio.CancelledError

    async def fail() -> int:
        raise failure

    monkeypatch.setattr(ingest.asyncio, "sleep", sleep)
    monkeypatch.setattr(ingest, "close_old_connections", lambda: None)
    ingester = Ingester(gateway=None, announce=None, announce_reach=announce_reach, clock=lambda: NOW)
    monkeypatch.setattr(ingester, "pull", fail)
    with pytest.raises(asyncio.CancelledError):
        await ingester.run()
    assert pauses == [0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0]


async def test_an_engine_that_is_down_is_reported_as_down(engine: FakeEngine) -> None:
    engine.down = True
    with pytest.raises(EngineDown):
        await AsyncGateway("http://engine", engine.secret, engine.transport()).events(0, 0, 10)
