from __future__ import annotations

from engine.rollout.counters import FIELDS, HOLDERS, Counters


def test_the_reader_sees_what_the_writer_published(tmp_path):
    writer = Counters.create(tmp_path / "counters")
    reader = Counters(tmp_path / "counters")
    writer.values["decode_steps"] += 3
    before = reader.read()["decode_steps"]

    writer.publish()

    assert (before, reader.read()["decode_steps"]) == (0, 3)


def test_a_fresh_file_reads_as_zeros(tmp_path):
    fresh = Counters.create(tmp_path / "counters")
    assert (fresh.read(), fresh.read_held()) == (dict.fromkeys(FIELDS, 0), {})


def test_the_reader_sees_who_holds_the_cache_now_and_not_who_held_it(tmp_path):
    writer = Counters.create(tmp_path / "counters")
    writer.publish_held({3: 700, 0: 20})
    writer.publish_held({5: 60})
    assert Counters(tmp_path / "counters").read_held() == {5: 60}


def test_of_more_holders_than_there_are_rows_the_largest_are_kept(tmp_path):
    table = Counters.create(tmp_path / "counters")
    table.publish_held({number: number for number in range(1, HOLDERS + 6)})
    assert min(table.read_held()) == 6 and len(table.read_held()) == HOLDERS
