"""The accounts: what is reserved can be released, once, to the byte."""

from __future__ import annotations

import pytest

from engine.core.kv import KvAccount
from engine.core.line import Line, TenantLines
from engine.core.slots import AdapterSlots


def test_kv_released_is_kv_reserved():
    account = KvAccount(100)
    account.reserve("a", 70)
    assert not account.reserve("b", 31)
    assert account.release("a") == 70
    assert account.reserve("b", 31)
    assert account.reserved_bytes == 31


def test_an_empty_account_takes_any_job_but_then_no_other():
    account = KvAccount(100)
    assert account.reserve("huge", 500)
    assert not account.reserve("small", 0)


def test_an_account_without_a_budget_takes_all():
    account = KvAccount(None)
    assert all(account.reserve(job, 10**15) for job in "abc")


def test_kv_is_reserved_once_per_job():
    account = KvAccount(100)
    account.reserve("a", 1)
    with pytest.raises(ValueError, match="already holds 1"):
        account.reserve("a", 1)


def test_kv_that_is_not_held_cannot_be_released():
    with pytest.raises(KeyError):
        KvAccount(100).release("a")


def test_negative_kv_is_refused():
    with pytest.raises(ValueError, match="-1"):
        KvAccount(100).reserve("a", -1)


def test_forced_kv_is_booked_beyond_the_budget():
    account = KvAccount(100)
    account.reserve("a", 90)
    assert account.reserve("b", 90, force=True)
    assert account.reserved_bytes == 180


def test_slots_run_out_and_come_back():
    slots = AdapterSlots(1)
    assert slots.reserve("a")
    assert not slots.reserve("b")
    slots.release("a")
    assert slots.reserve("b")


def test_a_slot_is_reserved_and_released_once():
    slots = AdapterSlots(2)
    slots.reserve("a")
    with pytest.raises(ValueError, match="already holds a slot"):
        slots.reserve("a")
    slots.release("a")
    with pytest.raises(KeyError):
        slots.release("a")


def test_a_line_serves_by_key_whatever_was_moved_or_removed():
    line = Line()
    for job, key in (("a", 3.0), ("b", 1.0), ("c", 2.0)):
        line.add(job, (key,))
    line.discard("b")
    line.add("c", (9.0,))
    assert (line.first(), list(line), len(line)) == ("a", ["a", "c"], 2)


def test_a_line_stays_small_however_often_jobs_move():
    line = Line()
    for turn in range(10_000):
        line.add(str(turn % 10), (float(turn),))
    assert len(line._heap) < 100


def test_the_common_order_stays_small_however_often_tenants_move():
    lines = TenantLines()
    lines.add("a", "t", (0.0,))
    for _ in range(10_000):
        lines.touch("t")
    assert len(lines._heap) < 100


def test_a_parked_tenants_jobs_stay_in_line_but_are_not_first():
    lines = TenantLines()
    lines.add("a", "t", (1.0,))
    lines.add("b", "u", (2.0,))
    lines.park("t")
    assert (lines.first(), list(lines)) == ("b", ["a", "b"])
    lines.unpark("t")
    assert lines.first() == "a"


def test_a_tenant_whose_first_job_moves_back_moves_back_too():
    lines = TenantLines()
    lines.add("a", "t", (1.0,))
    lines.add("b", "t", (3.0,))
    lines.add("c", "u", (2.0,))
    lines.add("a", "t", (4.0,))
    assert lines.first() == "c"
