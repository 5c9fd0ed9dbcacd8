from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection, transaction

from portal.billing import holds, ledger
from portal.billing.models import Account, Hold
from portal.jobs.models import Job
from tests.portal.billing.books import account, line
from tests.portal.world import NOW, World


def bare_job(world: World, dataset=None, reward=None) -> Job:
    """A row without submission or hold."""
    dataset, reward = dataset or world.dataset(), reward or world.reward()
    return Job.objects.create(tenant=world.sums, name="x", dataset=dataset, reward=reward, spec={"base_model": "tiny-math"})


def held(world: World) -> int:
    return Account.objects.get(tenant=world.sums).held_micros


def test_what_is_held_cannot_be_held_again(world: World) -> None:
    account(world.sums, 1000)
    holds.place(bare_job(world), 600, NOW)
    with pytest.raises(holds.NotCovered) as refused:
        holds.place(bare_job(world), 401, NOW)
    assert (refused.value.needed, refused.value.available) == (401, 400)
    holds.place(bare_job(world), 400, NOW)
    assert (held(world), Hold.objects.count()) == (1000, 2)
    assert ledger.audit(world.sums).sound


def test_a_refused_hold_leaves_nothing(world: World) -> None:
    account(world.sums, 10)
    with pytest.raises(holds.NotCovered):
        holds.place(bare_job(world), 11, NOW)
    assert (held(world), Hold.objects.count()) == (0, 0)


def test_paying_shrinks_the_hold_and_never_below_nothing(world: World) -> None:
    account(world.sums, 1000)
    hold = holds.place(bare_job(world), 300, NOW)
    holds.pay(hold, 100, NOW)
    assert (hold.micros, held(world)) == (200, 200)
    holds.pay(hold, 999, NOW)
    assert (hold.micros, held(world)) == (0, 0)


def test_a_top_up_takes_only_what_is_missing_and_only_whole(world: World) -> None:
    account(world.sums, 500)
    hold = holds.place(bare_job(world), 300, NOW)
    assert holds.raise_to(hold, 300, NOW) and held(world) == 300
    assert holds.raise_to(hold, 500, NOW) and held(world) == 500
    assert not holds.raise_to(hold, 501, NOW)
    assert (hold.micros, held(world)) == (500, 500)


def test_release_frees_the_rest_once_and_for_all(world: World) -> None:
    account(world.sums, 500)
    hold = holds.place(bare_job(world), 300, NOW)
    other = holds.place(bare_job(world), 100, NOW)
    for _ in range(2):
        holds.release(hold, NOW)
    assert (hold.micros, held(world), hold.closed_at) == (0, 100, NOW)
    assert not holds.raise_to(hold, 10, NOW)
    assert other.closed_at is None
    assert ledger.audit(world.sums).sound


def test_a_stale_reading_of_the_account_overdraws_nothing(world: World) -> None:
    """What two requests in a race do: both have read the same account before either reserves."""
    seen = account(world.sums, 100)
    stale = Account.objects.get(pk=seen.pk)
    assert [holds._reserve(seen, 60), holds._reserve(stale, 60)] == [True, False]
    assert held(world) == 60


@pytest.mark.django_db(transaction=True)
def test_fifty_reservations_at_once_never_overdraw(engine) -> None:
    from tests.portal.world import build

    world = build()
    account(world.sums, 2_050)
    dataset, reward = world.dataset(), world.reward()
    jobs = [bare_job(world, dataset, reward) for _ in range(50)]

    def reserve(job: Job) -> bool:
        try:
            with transaction.atomic():
                holds.place(job, 100, NOW)
            return True
        except holds.NotCovered:
            return False
        finally:
            connection.close()

    with ThreadPoolExecutor(50) as pool:
        taken = list(pool.map(reserve, jobs))
    assert sum(taken) == 20
    assert (held(world), Hold.objects.count()) == (2000, 20)
    assert ledger.audit(world.sums).sound


@pytest.mark.django_db(transaction=True)
def test_lines_of_many_threads_add_up_to_the_micro_unit(engine) -> None:
    from tests.portal.world import build

    world = build()
    account(world.sums, 1_000_000)

    def write(n: int) -> int:
        try:  # each line is delivered by two threads
            return len(ledger.post(world.sums, [line(n // 2, quantity=1237 + n // 2)], NOW))
        finally:
            connection.close()

    with ThreadPoolExecutor(20) as pool:
        written = list(pool.map(write, range(40)))
    assert sum(written) == 20
    assert ledger.audit(world.sums).sound
    assert Account.objects.get(tenant=world.sums).balance_micros == 1_000_000 - sum(ledger.price_of(1237 + n, 400_000) for n in range(20))
