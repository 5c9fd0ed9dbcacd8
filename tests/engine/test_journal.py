from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.epoch import StaleEpoch, claim
from engine.journal import Draft, Journal, JournalBroken, JournalCorrupt
from tests.engine.crashes import Died, dies_at, points_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


def draft(job: str = "job_a", kind: str = "warning", **data) -> Draft:
    return Draft(job=job, kind=kind, at=AT, data=data)


def open_journal(root, **kwargs) -> Journal:
    return Journal(root / "journal", claim(root), **kwargs)


@pytest.fixture
def journal(tmp_path):
    return open_journal(tmp_path)


def test_offsets_count_all_events_and_seqs_each_jobs(journal):
    events = journal.append([draft("job_a"), draft("job_b"), draft("job_a"), draft("")])
    assert [event.offset for event in events] == [1, 2, 3, 4]
    assert [event.seq for event in events] == [1, 1, 2, 0]


def test_events_are_read_back_after_a_cursor(journal):
    written = journal.append([draft(n=n) for n in range(5)])
    assert journal.read_after(0, 100) == written
    assert journal.read_after(2, 2) == written[2:4]
    assert journal.read_after(5, 10) == journal.read_after(99, 10) == []


def test_a_reopened_journal_goes_on_counting(tmp_path):
    first = open_journal(tmp_path)
    first.append([draft("job_a"), draft("job_b")])
    second = open_journal(tmp_path)
    [event] = second.append([draft("job_b")])
    assert (event.offset, event.seq, event.epoch, event.engine) == (3, 2, 2, first.engine)


def test_segments_are_one_history(tmp_path):
    journal = open_journal(tmp_path, segment_bytes=500)
    written = [event for n in range(20) for event in journal.append([draft(n=n)])]
    assert len(list((tmp_path / "journal").glob("*.jsonl"))) > 3
    reopened = open_journal(tmp_path, segment_bytes=500)
    assert reopened.read_after(0, 100) == written
    assert reopened.read_after(7, 9) == written[7:16]
    assert list(reopened.replay(chunk=3)) == written


def test_a_torn_last_line_is_cut_off(tmp_path):
    journal = open_journal(tmp_path)
    journal.append([draft(), draft()])
    [segment] = (tmp_path / "journal").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes()[:-10])
    reopened = open_journal(tmp_path)
    assert reopened.last == 1
    [event] = reopened.append([draft()])
    assert (event.offset, event.seq) == (2, 2)
    assert [event.offset for event in open_journal(tmp_path).replay()] == [1, 2]


def test_damage_before_the_end_is_refused(tmp_path):
    open_journal(tmp_path).append([draft(), draft(), draft()])
    [segment] = (tmp_path / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join([lines[0], b"{}\n", lines[2]]))
    with pytest.raises(JournalCorrupt, match="no event at byte"):
        open_journal(tmp_path)


def test_a_missing_line_is_refused(tmp_path):
    open_journal(tmp_path).append([draft(), draft(), draft()])
    [segment] = (tmp_path / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(lines[0] + lines[2])
    with pytest.raises(JournalCorrupt, match="expected"):
        open_journal(tmp_path)


def test_a_jobs_numbers_must_have_no_gap(tmp_path):
    open_journal(tmp_path).append([draft(), draft()])
    [segment] = (tmp_path / "journal").glob("*.jsonl")
    segment.write_text(segment.read_text().replace('"seq":2', '"seq":3'))
    with pytest.raises(JournalCorrupt, match="expected"):
        open_journal(tmp_path)


def test_an_older_manager_cannot_append(journal, tmp_path):
    claim(tmp_path)
    with pytest.raises(StaleEpoch):
        journal.append([draft()])
    assert open_journal(tmp_path).last == 0


def test_after_a_failed_write_the_journal_takes_nothing_more(tmp_path):
    journal = open_journal(tmp_path, crash_at=dies_at("journal:written"))
    for error in (Died, JournalBroken):
        with pytest.raises(error):
            journal.append([draft()])


def test_an_append_that_crashes_anywhere_leaves_a_history_without_gap(tmp_path):
    points = points_of(lambda hook: open_journal(tmp_path / "dry", crash_at=hook).append([draft()]))
    assert points == ["journal:segment-made", "journal:buffered", "journal:written", "journal:synced"]
    for point in points:
        root = tmp_path / point.replace(":", "-")
        open_journal(root).append([draft()])
        dying = open_journal(root, segment_bytes=1, crash_at=dies_at(point))
        with pytest.raises(Died):
            dying.append([draft(), draft()])
        reopened = open_journal(root)
        reopened.append([draft()])
        events = list(open_journal(root).replay())
        assert [event.offset for event in events] == [event.seq for event in events] == list(range(1, len(events) + 1))
        assert len(events) in (2, 4), point
