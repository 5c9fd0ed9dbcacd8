"""What is used at once: held before it begins, billed by what it used, the rest free again, whatever way it ends."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from engine.rewards.judge import JudgeReply
from portal import gateway
from portal.billing import holds, ledger, limits, quotas, refusals, spending, storage
from portal.billing.models import Account, DailyUsage, Entry, Hold, Invoice, Price, QuotaOverride
from portal.billing.money import shown as shown_money
from portal.billing.spending import Spender
from portal.datasets.models import Dataset
from portal.gateway import EngineDown
from portal.openai import graders
from portal.rewards import lab, probes
from portal.rewards.models import LabRun, Probe
from portal.rewards.trial import parse_trial
from tenants.models import Tenant
from tests.portal.billing.books import account
from tests.portal.fake_engine import FakeEngine
from tests.portal.rewards.examples import grader
from tests.portal.rewards.trials import rows, typed
from tests.portal.world import NOW, World

JUDGED = grader("score_model")
TOKENS = 50  # that the judge says to have read and written for each completion
MILLION = 1_000_000


class Strict:
    """A judge who gives everything a one."""

    def __init__(self, answer: str = '{"reason": "fine", "result": 1}'):
        self.answer = answer

    async def complete(self, messages: Any, **_: Any) -> JudgeReply:
        return JudgeReply(text=self.answer, tokens=TOKENS)

    async def close(self) -> None: ...


class StopsAfter(Strict):
    """The first question is never answered; after so many other answers the engine's Lab is told to stop."""

    def __init__(self, answers: int, engine: FakeEngine):
        super().__init__()
        self.left, self.asked, self.engine = answers, 0, engine

    async def complete(self, messages: Any, **more: Any) -> JudgeReply:
        self.asked += 1
        if self.asked == 1:
            await asyncio.Event().wait()
        reply = await super().complete(messages, **more)
        self.left -= 1
        if not self.left:
            asyncio.get_running_loop().call_soon(self._stop, 20)
        return reply

    def _stop(self, turns: int) -> None:
        """Some turns of the loop later, when what was answered has been written down; nothing else goes on."""
        if turns:
            asyncio.get_running_loop().call_soon(self._stop, turns - 1)
        else:
            self.engine.lab.stop(self.engine.orders[-1]["run"])


@pytest.fixture
def judged(engine: FakeEngine) -> FakeEngine:
    engine.judges = {"strict": Strict()}
    return engine


def spender(tenant: Tenant, source: str = "chat_a") -> Spender:
    return Spender(tenant=tenant, source_type="chat", source=source, model="tiny-math", words="this answer")


def hold(world: World, source: str = "chat_a", tokens: int = 1000, now: datetime = NOW) -> Hold:
    return spending.hold(spender(world.sums, source), {"sampled": tokens}, now, lasts=timedelta(minutes=1))


def bills(source_type: str) -> list[tuple[str, int, str, int, int]]:
    """(source, step, kind, quantity, what it costs) in order."""
    entries = Entry.objects.filter(source_type=source_type).order_by("id")
    return [(e.source, e.step, e.kind, e.quantity, -e.amount_micros) for e in entries]


def free(world: World) -> bool:
    """Nothing is held any more, and the books agree."""
    return Account.objects.get(tenant=world.sums).held_micros == 0 and ledger.audit(world.sums).sound


def begin(world: World, trial: dict[str, Any], how: Any = JUDGED) -> LabRun:
    return lab.begin_run(world.sums, world.alice, how, parse_trial(trial), timezone.now())


# Any of them


def test_what_is_held_twice_is_held_once_and_filled_up(world: World) -> None:
    account(world.sums, 1000)
    assert [hold(world, tokens=n).micros for n in (1000, 1000, 2000, 500)] == [400, 400, 800, 800]
    assert (Hold.objects.count(), Account.objects.get(tenant=world.sums).held_micros) == (1, 800)


def test_what_was_used_is_paid_and_the_rest_is_free_once(world: World) -> None:
    account(world.sums, 1000)
    hold(world)
    whose = spender(world.sums)
    for _ in range(2):
        spending.bill(whose, spending.used(whose, {"sampled": 100}, NOW), NOW)
    assert (bills("chat"), free(world)) == ([("chat_a", 0, "sampled", 100, 40)], True)
    assert Hold.objects.get().closed_at == NOW
    hold(world)  # late, of something that has ended: nothing is set aside for it
    assert free(world)


def test_what_credit_does_not_cover_is_refused_with_the_sum_and_nothing_is_stored(world: World) -> None:
    account(world.sums, 399)
    with pytest.raises(refusals.NoCredit) as refused:
        hold(world)
    ((field, told),) = refused.value.problems
    assert field == "credit" and "this answer may cost 0.0004 USD, 0.000399 USD of your credit is free" in told and "get more" in told
    assert not Hold.objects.exists() and free(world)


def test_the_months_tokens_the_hard_stop_and_unpaid_invoices_refuse_it_too(world: World) -> None:
    account(world.sums, MILLION)
    QuotaOverride.objects.create(tenant=world.sums, quota="tokens_per_month", limit=999, reason="test")
    with pytest.raises(quotas.QuotaExceeded, match="0 of this month's 999 tokens are used and this answer may take 1,000"):
        hold(world)
    QuotaOverride.objects.all().delete()
    limits.change(world.sums, world.alice, None, 399, NOW)
    with pytest.raises(refusals.SpendingLimit, match=r"this answer may cost 0\.0004 USD"):
        hold(world)
    limits.change(world.sums, world.alice, None, None, NOW)
    old = NOW - timedelta(days=8)
    Invoice.objects.create(
        tenant=world.sums, invoice_id="in_1", status="open", currency="USD", total_minor=1, paid_minor=0, created_at=old, failed_at=old
    )
    with pytest.raises(refusals.PaymentDue, match="settle it on the billing page"):
        hold(world)
    assert not Hold.objects.exists()


def test_what_nobody_released_is_released_when_it_expires(world: World) -> None:
    account(world.sums, 1000)
    hold(world, "dead")
    hold(world, "alive", now=NOW + timedelta(minutes=1))
    assert [holds.sweep(NOW + timedelta(seconds=n)) for n in (60, 61, 61)] == [0, 1, 0]
    assert Hold.objects.get(closed_at=None).source == "alive"
    assert ledger.audit(world.sums).sound


@pytest.mark.django_db(transaction=True)
def test_fifty_answers_at_once_never_overdraw(engine: FakeEngine) -> None:
    from tests.portal.world import build

    world = build()
    account(world.sums, 20 * 400 + 399)

    def ask(number: int) -> bool:
        try:
            hold(world, f"chat_{number}")
            return True
        except refusals.NoCredit:
            return False
        finally:
            connection.close()

    with ThreadPoolExecutor(50) as pool:
        assert sum(pool.map(ask, range(50))) == 20
    assert Account.objects.get(tenant=world.sums).available_micros == 399
    assert ledger.audit(world.sums).sound


# Trials of rewards


def test_a_trial_is_billed_its_judges_tokens(world: World, judged: FakeEngine) -> None:
    run = begin(world, typed(repeats=2))
    assert (run.state, bills("trial")) == ("succeeded", [(run.public_id, 0, "judge", 2 * TOKENS, 20)])
    assert free(world)


def test_what_a_judge_was_asked_in_vain_is_billed_too(world: World, judged: FakeEngine) -> None:
    judged.judges = {"strict": Strict("no idea")}
    run = begin(world, typed())
    assert (run.cases.get().result["outcomes"][0]["error"]["kind"], bills("trial")[0][3]) == ("judge", 2 * TOKENS)


def test_a_trial_without_judges_is_free_and_needs_no_credit(world: World) -> None:
    account(world.sums, 0)
    assert begin(world, typed(), {"type": "numeric"}).state == "succeeded"
    assert not bills("trial") and not Hold.objects.exists()


def test_a_trial_that_credit_does_not_cover_is_refused_whole(world: World, judged: FakeEngine) -> None:
    account(world.sums, 10)
    with pytest.raises(refusals.NoCredit, match="the judges of this trial may cost"):
        begin(world, typed())
    assert not LabRun.objects.exists() and not judged.orders


def test_a_trial_in_slices_is_billed_slice_by_slice(
    world: World, judged: FakeEngine, django_capture_on_commit_callbacks: Any, one_case_a_call: None
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        run = begin(world, rows(world.dataset(), count=3))
    assert LabRun.objects.get().state == "succeeded"
    assert [(source, step, quantity) for source, step, _, quantity, _ in bills("trial")] == [
        (run.public_id, step, TOKENS) for step in range(3)
    ]
    assert free(world)


def test_a_trial_whose_credit_ends_on_the_way_ends_with_the_reason(world: World, judged: FakeEngine, one_case_a_call: None) -> None:
    run = begin(world, rows(world.dataset(), count=3))
    assert run.is_open
    Account.objects.filter(tenant=world.sums).update(balance_micros=0)
    lab.go_on(run.pk, timezone.now())
    run.refresh_from_db()
    assert (run.state, run.done) == ("failed", 1)
    assert "the judges of this trial may cost" in run.note
    assert (Account.objects.get(tenant=world.sums).held_micros, len(bills("trial"))) == (0, 1)


def test_a_trial_that_is_stopped_pays_for_what_is_graded(world: World, judged: FakeEngine, one_case_a_call: None) -> None:
    run = begin(world, rows(world.dataset(), count=3))
    assert Account.objects.get(tenant=world.sums).held_micros > 0
    lab.stop_run(world.sums, world.alice, run, timezone.now())
    assert (len(bills("trial")), free(world)) == (1, True)


def test_a_trial_that_is_stopped_pays_for_what_was_graded_in_the_slice_under_way(world: World, judged: FakeEngine) -> None:
    judged.judges = {"strict": StopsAfter(2, judged)}
    judged.meanwhile = lambda: lab.stop_run(world.sums, world.alice, LabRun.objects.get(), timezone.now())
    run = begin(world, rows(world.dataset(), count=3))
    assert (run.state, run.done, bills("trial")) == ("stopped", 2, [(run.public_id, 0, "judge", 2 * TOKENS, 20)])
    assert [case.number for case in run.cases.order_by("number") if case.result] == [1, 2]
    assert free(world)


def test_what_a_stopped_trial_holds_is_free_when_its_slice_was_lost(world: World, judged: FakeEngine, one_case_a_call: None) -> None:
    run = begin(world, rows(world.dataset(), count=3))
    LabRun.objects.update(state="stopped")
    assert not free(world)
    lab.go_on(run.pk, timezone.now())
    assert (len(bills("trial")), free(world)) == (1, True)


@pytest.fixture
def one_case_a_call(judged: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "_CASES_AT_ONCE", 1)


def test_one_answer_graded_by_a_judge_is_billed(world: World, judged: FakeEngine) -> None:
    world.reward()
    outcome = graders.grade(gateway.engine(), world.sums, world.bob, JUDGED, "42", {"answer": "42"})
    ((source, step, kind, quantity, micros),) = bills("trial")
    assert (outcome["reward"], source[:4], step, kind, quantity, micros) == (1.0, "grad", Hold.objects.get().pk, "judge", TOKENS, 10)
    assert free(world)


def test_a_grading_that_the_engine_does_not_answer_costs_nothing(world: World, judged: FakeEngine) -> None:
    judged.down = True
    with pytest.raises(EngineDown):
        graders.grade(gateway.engine(), world.sums, world.bob, JUDGED, "42", {"answer": "42"})
    assert not bills("trial") and free(world)


# Probes

# Of each completion the fake engine counts 10 prompt tokens and 1 of the environment, 5 of them cached, 4 sampled, 2 of judges.
PROBED = [("prefill", 6), ("cached_prefill", 5), ("sampled", 4), ("judge", 2)]


def counted(completions: int) -> list[tuple[str, int]]:
    return [(kind, completions * count) for kind, count in PROBED]


def quantities() -> list[tuple[str, int]]:
    return [(kind, quantity) for _, _, kind, quantity, _ in bills("probe")]


def test_a_probe_is_billed_what_it_sampled_once(world: World) -> None:
    probe = world.probe()
    assert Account.objects.get(tenant=world.sums).held_micros > 0
    for _ in range(6):
        probes.refresh(Probe.objects.get(), timezone.now())
    assert (Probe.objects.get().state, quantities()) == ("done", counted(probe.total))
    assert {source for source, *_ in bills("probe")} == {probe.public_id}
    assert sum(micros for *_, micros in bills("probe")) > 0
    assert free(world)


def test_a_probe_holds_the_worst_that_its_rows_can_take(world: World) -> None:
    probe = world.probe()
    spec, rollout = probe.spec, probe.spec["rollout"]
    completions = 8 * rollout["group_size"]
    prefill, sampled = completions * rollout["max_prompt_tokens"], completions * rollout["max_new_tokens"]
    assert Hold.objects.get().micros == ledger.price_of(prefill, 100_000) + ledger.price_of(sampled, 400_000)
    assert spec["base_model"] == "tiny-math"


def test_a_probe_that_is_cancelled_pays_for_the_rows_that_were_done(world: World, engine: FakeEngine) -> None:
    probe = world.probe()
    probes.refresh(probe, timezone.now())
    probes.cancel_probe(world.sums, world.alice, probe, timezone.now())
    assert (quantities(), free(world)) == (counted(probe.total // 4), True)


def test_a_probe_that_is_cancelled_while_the_engine_is_away_costs_nothing(world: World, engine: FakeEngine) -> None:
    probe = world.probe()
    engine.down = True
    probes.cancel_probe(world.sums, world.alice, probe, timezone.now())
    assert not bills("probe") and free(world)


@pytest.mark.parametrize(("attribution", "billed"), [("user", True), ("reward", True), ("platform", False)])
def test_a_probe_that_fails_is_billed_only_if_it_was_the_tenants_doing(
    world: World, engine: FakeEngine, attribution: str, billed: bool
) -> None:
    probe = world.probe()
    probes.refresh(probe, timezone.now())
    engine.probes.known[probe.public_id] |= {"state": "failed", "error": {"reason": "so it is", "attribution": attribution}}
    probes.refresh(probe, timezone.now())
    assert (quantities(), free(world)) == (counted(probe.total // 4), True)
    assert (sum(micros for *_, micros in bills("probe")) > 0) == billed
    assert {entry.reason for entry in Entry.objects.filter(source_type="probe")} == (
        {""} if billed else {"not billed: the platform failed this probe: so it is"}
    )


def test_a_probe_that_the_engine_refuses_or_never_hears_of_holds_nothing(world: World, engine: FakeEngine) -> None:
    asked, reward = {"dataset": world.dataset().public_id, "base_model": "tiny-math"}, world.reward()
    engine.probes.objection = (409, "too many")
    with pytest.raises(probes.Conflict):
        probes.start_probe(world.sums, world.alice, reward, asked, timezone.now())
    engine.down = True
    with pytest.raises(EngineDown):
        probes.start_probe(world.sums, world.alice, reward, asked, timezone.now())
    assert free(world) and not Hold.objects.filter(closed_at=None).exists()


def test_a_probe_that_the_engine_forgot_begins_again_and_is_billed_once(world: World, engine: FakeEngine) -> None:
    probe = world.probe()
    probes.refresh(probe, timezone.now())
    engine.probes.known.clear()
    engine.probes.orders.clear()
    for _ in range(6):
        probes.refresh(Probe.objects.get(), timezone.now())
    assert (quantities(), Hold.objects.count(), free(world)) == (counted(probe.total), 1, True)


def test_a_probe_that_credit_does_not_cover_is_refused_before_the_engine_hears_of_it(world: World, engine: FakeEngine) -> None:
    account(world.sums, 10)
    with pytest.raises(refusals.NoCredit, match="this probe may cost"):
        world.probe()
    assert not engine.probes.orders and not Probe.objects.exists()


# What the pages say


def test_the_pages_of_trials_and_probes_say_what_they_cost(world: World, judged: FakeEngine) -> None:
    client, probe = world.client(world.alice), world.probe()
    reward = probe.reward.public_id
    assert "is set aside until it ends" in client.get(f"/rewards/{reward}/probe/").content.decode()
    for _ in range(4):
        shown = client.get(f"/rewards/probes/{probe.public_id}/", headers={"HX-Request": "true"}).content.decode()
    cost = sum(micros for *_, micros in bills("probe"))
    assert f"This probe has cost {shown_money(cost)}" in shown
    run = begin(world, typed())
    assert f"{TOKENS} <small>0.00001 USD</small>" in client.get(f"/rewards/runs/{run.public_id}/").content.decode()
    assert "Trials are free, except for what judges read and write" in client.get(f"/rewards/{reward}/lab/").content.decode()


# Storage


def store(world: World, size: int, created_at: datetime) -> Dataset:
    dataset = world.dataset()
    Dataset.objects.filter(pk=dataset.pk).update(train_bytes=size, eval_bytes=0, created_at=created_at)
    return dataset


NOON = datetime(2026, 3, 5, 12, tzinfo=UTC)


def days() -> list[tuple[str, int, int]]:
    rows = DailyUsage.objects.filter(kind="storage").order_by("day")
    return [(f"{row.day:%m-%d}", row.quantity, row.amount_micros) for row in rows]


def test_storage_is_counted_once_for_each_day_that_is_over(world: World) -> None:
    ledger.account_of(world.sums, NOON - timedelta(days=30))
    store(world, 2_400_000, NOON - timedelta(days=1, hours=1))
    assert [storage.charge(NOON), storage.charge(NOON), storage.charge(NOON + timedelta(days=1))] == [1, 0, 1]
    assert days() == [("03-04", 2, 0), ("03-05", 2, 0)]
    assert ledger.audit(world.sums).sound


def test_days_that_nobody_counted_are_made_up_for(world: World) -> None:
    ledger.account_of(world.sums, NOON - timedelta(days=30))
    store(world, 5_000_000, NOON - timedelta(days=9))
    assert storage.charge(NOON) == storage.BACK_DAYS
    assert [day for day, *_ in days()] == ["03-02", "03-03", "03-04"]


def test_storage_costs_what_the_price_list_says_for_the_day(world: World) -> None:
    ledger.account_of(world.sums, NOON - timedelta(days=30))
    store(world, 3_000_000, NOON - timedelta(days=9))
    Price.objects.create(kind="storage", micros_per_million=10**9, effective_from=datetime(2026, 3, 4, tzinfo=UTC), set_by="test")
    storage.charge(NOON)
    assert [(day, micros) for day, _, micros in days()] == [("03-02", 0), ("03-03", 0), ("03-04", -3000)]


def test_what_rounds_to_nothing_and_days_before_the_account_have_no_line(world: World) -> None:
    ledger.account_of(world.sums, NOON - timedelta(days=1))
    small = store(world, 499_999, NOON - timedelta(days=9))
    assert storage.charge(NOON) == 0
    Dataset.objects.filter(pk=small.pk).update(train_bytes=500_000)
    assert (storage.charge(NOON), days()) == (1, [("03-04", 1, 0)])
