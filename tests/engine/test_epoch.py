from __future__ import annotations

import pytest

from engine.epoch import StaleEpoch, claim


def test_each_claim_takes_the_next_epoch(tmp_path):
    assert [claim(tmp_path).number for _ in range(3)] == [1, 2, 3]


def test_the_latest_epoch_may_write(tmp_path):
    claim(tmp_path)
    with claim(tmp_path).guard():
        pass


def test_an_older_epoch_is_refused(tmp_path):
    old = claim(tmp_path)
    claim(tmp_path)
    with pytest.raises(StaleEpoch, match="epoch 1 was replaced by epoch 2"), old.guard():
        pytest.fail("the guard let an older epoch write")
