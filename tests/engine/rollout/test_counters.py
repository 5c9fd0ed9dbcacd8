from __future__ import annotations

from engine.rollout.counters import FIELDS, Counters


def test_the_reader_sees_what_the_writer_published(tmp_path):
    writer = Counters.create(tmp_path / "counters")
    reader = Counters(tmp_path / "counters")
    writer.values["decode_steps"] += 3
    before = reader.read()["decode_steps"]

    writer.publish()

    assert (before, reader.read()["decode_steps"]) == (0, 3)


def test_a_fresh_file_reads_as_zeros(tmp_path):
    assert Counters.create(tmp_path / "counters").read() == dict.fromkeys(FIELDS, 0)
