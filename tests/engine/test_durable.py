from __future__ import annotations

import pytest

from engine.durable import replace_file
from tests.engine.crashes import Died, dies_at, points_of


def test_a_replaced_file_has_the_new_content(tmp_path):
    replace_file(tmp_path / "f", b"old")
    replace_file(tmp_path / "f", b"new")
    assert (tmp_path / "f").read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("point", ["file:staged", "file:renamed"])
def test_a_crash_leaves_the_old_or_the_new_content(tmp_path, point):
    replace_file(tmp_path / "f", b"old")
    with pytest.raises(Died):
        replace_file(tmp_path / "f", b"new", crash_at=dies_at(point))
    assert (tmp_path / "f").read_bytes() == {"file:staged": b"old", "file:renamed": b"new"}[point]


def test_the_crash_points_are_those_documented(tmp_path):
    assert points_of(lambda hook: replace_file(tmp_path / "f", b"x", crash_at=hook)) == ["file:staged", "file:renamed"]
