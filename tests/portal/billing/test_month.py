"""A whole month and what follows, with the clock in the test's hand: sign-up, credit, jobs, overage, invoice, a payment that fails, jobs
that stop at a step, the payment, jobs that go on, a refund. At every point ledger and Stripe say the same, to the micro-unit.
"""

from __future__ import annotations

import csv
from datetime import datetime
from typing import Any

import pytest
from django.test import TestCase

from portal.billing import gate, late, ledger, outbox, reconcile, standing, usage
from portal.billing.models import Account, Entry, Invoice, LateUsage, TopUp
from portal.billing.stripe_client import Stripe
from portal.billing.stripe_records import Unreachable
from portal.jobs import delivery
from portal.jobs.actions import create_job
from tests.fake_stripe import FakeStripe
from tests.fake_stripe.state import MONTH
from tests.portal.billing.books import Run, account
from tests.portal.billing.till import DAY, HOUR, Clock, deliver, plan, subscribe, topup
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

STEP = {"prefill": 0, "sampled": 10_000_000, "judge": 0, "trained": 123_457}
STEP_MICROS = 4_000_000 + 74_074


class Month:
    """Alice's organisation, one job, and Stripe beside them."""

    def __init__(self, world: World, engine: FakeEngine, fake: FakeStripe, stripe: Stripe, clock: Clock):
        self.world, self.engine, self.fake, self.stripe, self.clock = world, engine, fake, stripe, clock
        account(world.sums, 0)
        self.subscription = ""
        self.run: Any = None
        self.version = 0

    @property
    def balance(self) -> int:
        return Account.objects.get(tenant=self.world.sums).balance_micros

    def hear(self) -> None:
        deliver(self.fake, self.stripe, self.clock())

    def beat(self) -> None:
        outbox.seal(self.clock())
        outbox.send(self.stripe, self.clock(), monotonic=lambda: 0.0)

    def steps(self, count: int) -> None:
        """One a day, and Stripe is told of it."""
        for _ in range(count):
            self.version += 1
            self.run.step(self.version, tokens=STEP, rollout={"cached_tokens": 0})
            self.run.store(self.clock())
            self.clock.on(DAY)
            self.beat()

    def carried(self) -> None:
        """What was wished of jobs reaches the engine, and its answer the portal."""
        delivery.deliver(self.run.job.pk, self.clock())
        self.run.store(self.clock())

    def until(self, moment: datetime) -> None:
        assert moment >= self.clock.now
        self.clock.now = moment
        self.beat()

    def closes_before_its_usage_came(self) -> None:
        """A subscriber's month with one step of overage, whose invoice Stripe has closed before it heard of any."""
        self.subscription = subscribe(self.stripe, self.fake, self.world, self.clock, included=1_000_000)
        self.hear()
        self.run = Run(self.world, self.engine, train={"steps": 1000})
        self.steps(1)
        self.until(NOW + MONTH)
        self.fake.usage.clear()
        self.fake.finalize(self.fake.end_period(self.subscription)["id"])
        self.hear()

    def may_start(self) -> bool:
        try:
            with TestCase.captureOnCommitCallbacks():
                create_job(self.world.sums, self.world.alice, self.world.order(), self.clock())
        except gate.PaymentDue:
            return False
        return True


@pytest.fixture
def month(world: World, engine: FakeEngine, fake: FakeStripe, stripe: Stripe, clock: Clock) -> Month:
    return Month(world, engine, fake, stripe, clock)


def csv_rows(month: Month, first: datetime) -> list[dict[str, str]]:
    lines = "".join(usage.entries_csv(month.world.sums, usage.month_of(f"{first:%Y-%m}", first)))
    return list(csv.DictReader(lines.splitlines()))


def test_a_month_and_its_bill(month: Month) -> None:
    fake, world = month.fake, month.world
    # Credit is bought, then a plan.
    fake.complete(topup(month.stripe, world, month.clock, 5_000_000))
    month.hear()
    assert month.balance == 5_000_000
    month.subscription = subscribe(month.stripe, fake, world, month.clock)
    month.hear()
    assert month.balance == 25_000_000

    # Jobs use it up, and more.
    month.run = Run(world, month.engine, train={"steps": 1000})
    month.steps(7)
    used = 7 * STEP_MICROS
    assert month.balance == 25_000_000 - used < 0
    overage = used - 25_000_000
    assert sum(Entry.objects.values_list("overage_micros", flat=True)) == overage

    # The month ends: fee and overage on one invoice, each line rounded once; the payment fails.
    month.until(NOW + MONTH)
    draft = fake.end_period(month.subscription)
    customer = fake.customer(world.sums.public_id)["id"]
    fake.pays[customer] = False
    month.clock.on(HOUR)
    fake.finalize(draft["id"])
    month.hear()
    invoice = Invoice.objects.get(status="open")
    fee, extra = invoice.lines
    assert (fee["amount_minor"], extra["quantity"], extra["amount_minor"]) == (4900, overage, round(overage / 10_000))
    assert invoice.total_minor == fee["amount_minor"] + extra["amount_minor"]
    told = [row for row in csv_rows(month, NOW) if row["told_hour"]]
    assert sum(int(row["overage_micros"]) for row in told if extra["start"] <= row["told_hour"] < extra["end"]) == extra["quantity"]

    # Grace: all goes on. Then nothing new starts. Then what runs pauses at its next step, with its version kept.
    assert standing.of(world.sums, month.clock()).stage == "grace" and month.may_start()
    month.steps(1)
    month.until(month.clock() + 7 * DAY)
    assert standing.of(world.sums, month.clock()).stage == "no_new_jobs" and not month.may_start()
    Account.objects.update(credit_line_micros=100_000_000)  # it is not the credit that stops them
    month.steps(1)
    assert month.run.pauses() == []
    month.until(month.clock() + 3 * DAY)
    month.steps(1)
    assert [reason.split(",")[0] for reason in month.run.pauses()] == ["billing: an invoice is unpaid since 2026-01-31"]
    month.carried()
    month.run.tell("paused", version=month.version, reason="")
    month.run.store(month.clock())
    assert (month.run.job.state, month.run.job.version) == ("paused", 10)
    assert not month.run.job.commands.filter(kind="cancel").exists()

    # It is paid: what was owed is credit again, the plan's share is there, and the job goes on.
    before = month.balance
    fake.pays[customer] = True
    assert fake.try_to_collect(invoice.invoice_id)
    month.hear()
    assert month.balance == before + overage + 20_000_000
    assert standing.of(world.sums, month.clock()).stage == "fine"
    month.carried()
    assert (month.run.job.state, month.run.hold.stop_code) == ("queued", "")
    assert month.may_start()
    month.steps(1)

    # The first credit is refunded.
    before = month.balance
    fake.refund(TopUp.objects.get().payment_id, 500)
    month.hear()
    assert month.balance == before - 5_000_000

    month.clock.on(DAY)
    month.beat()
    assert ledger.audit(world.sums).sound
    assert reconcile.compare(month.stripe, month.clock()) == []
    tokens = sum(Entry.objects.filter(kind="sampled").values_list("quantity", flat=True))
    assert fake.used(customer, outbox.METERS["sampled"]) == tokens == 11 * STEP["sampled"]


def test_a_price_that_changes_and_a_plan_that_changes_leave_what_was_used_before(month: Month) -> None:
    month.subscription = subscribe(month.stripe, month.fake, month.world, month.clock, included=1_000_000)
    month.hear()
    month.run = Run(month.world, month.engine, train={"steps": 1000})
    month.steps(1)
    larger = plan(month.fake, "large", included=70_000_000, overage=90_000_000)
    month.fake.change_plan(month.subscription, larger.stripe_price, prorated_minor=1234)
    month.hear()
    found = Account.objects.select_related("plan").get(tenant=month.world.sums)
    assert (found.plan, found.credit_line_micros) == (larger, 90_000_000)
    assert found.balance_micros == 1_000_000 - STEP_MICROS  # a proration brings none of the new plan's credit
    month.steps(1)
    prices = set(Entry.objects.filter(kind="sampled").values_list("price_micros", flat=True))
    assert prices == {400_000}
    month.until(NOW + MONTH)
    invoice = month.fake.finalize(month.fake.end_period(month.subscription)["id"])
    month.hear()
    overage = sum(Entry.objects.values_list("overage_micros", flat=True))
    assert [line["quantity"] for line in invoice["lines"]["data"]] == [1, overage]
    assert month.balance == 1_000_000 - 2 * STEP_MICROS + overage + 70_000_000


def test_a_dispute_has_the_grace_of_an_invoice_and_what_it_stopped_goes_on_when_it_is_won(month: Month) -> None:
    month.fake.complete(topup(month.stripe, month.world, month.clock, 500_000_000))
    month.fake.complete(topup(month.stripe, month.world, month.clock, 5_000_000))
    month.hear()
    month.run = Run(month.world, month.engine, train={"steps": 1000})
    dispute = month.fake.dispute(TopUp.objects.first().payment_id, 500)
    month.hear()
    stages = []
    for days in (0, 7, 3):
        month.clock.on(days * DAY)
        stages.append(standing.of(month.world.sums, month.clock()).stage)
    assert stages == ["grace", "no_new_jobs", "stopped"]
    month.steps(1)
    assert "disputed with your bank" in month.run.pauses()[0]
    month.carried()
    month.run.tell("paused", version=1, reason="")
    month.run.store(month.clock())
    month.fake.close_dispute(dispute["id"], won=True)
    month.hear()
    month.carried()
    assert month.run.job.state == "queued"


def test_credit_that_is_bought_lets_a_job_go_on_that_stopped_for_want_of_it(month: Month) -> None:
    month.fake.complete(topup(month.stripe, month.world, month.clock, 5_000_000))
    month.hear()
    month.run = Run(month.world, month.engine, train={"steps": 1000})
    month.steps(2)
    assert month.run.hold.stop_code == "credit"
    month.carried()
    month.run.tell("paused", version=2, reason="")
    month.run.store(month.clock())
    month.fake.complete(topup(month.stripe, month.world, month.clock, 20_000_000))
    month.hear()
    month.carried()
    assert (month.run.job.state, month.run.hold.stop_code) == ("queued", "")


def test_a_job_that_somebody_paused_does_not_go_on_because_of_money(month: Month) -> None:
    month.fake.complete(topup(month.stripe, month.world, month.clock, 5_000_000))
    month.hear()
    month.run = Run(month.world, month.engine)
    month.run.tell("paused", version=0, reason="by Alice")
    month.run.store(month.clock())
    month.fake.complete(topup(month.stripe, month.world, month.clock, 5_000_000))
    month.hear()
    assert not month.run.job.commands.exists()


def test_a_subscriber_that_goes_too_far_below_0_is_stopped_by_its_line(month: Month) -> None:
    subscribe(month.stripe, month.fake, month.world, month.clock, included=1_000_000, overage=5_000_000)
    month.hear()
    month.run = Run(month.world, month.engine, train={"steps": 1000})
    month.steps(2)
    assert month.run.hold.stop_code == "credit"


def test_at_night_what_stripe_lacks_or_has_too_much_is_found_and_told(month: Month, caplog: pytest.LogCaptureFixture) -> None:
    month.fake.complete(topup(month.stripe, month.world, month.clock, 50_000_000))
    month.hear()
    month.run = Run(month.world, month.engine, train={"steps": 1000})
    month.steps(1)
    assert reconcile.compare(month.stripe, month.clock()) == []
    lost = month.fake.usage.pop()
    (found,) = reconcile.compare(month.stripe, month.clock())
    assert (found.ours, found.theirs) == (lost["payload"]["value"], "0") and "stripe_and_we_differ" in caplog.text
    month.fake.usage += [lost, {**lost, "identifier": "twice"}]
    (found,) = reconcile.compare(month.stripe, month.clock())
    assert int(found.theirs) == 2 * int(found.ours)
    month.fake.usage.pop()
    assert reconcile.compare(month.stripe, month.clock()) == [] and not reconcile.Discrepancy.objects.exists()


def test_usage_that_came_too_late_for_its_invoice_is_found_at_night(month: Month) -> None:
    month.closes_before_its_usage_came()
    month.fake.cancel(month.subscription)
    (found,) = reconcile.compare(month.stripe, month.clock())
    assert found.what.startswith("overage on invoice") and found.theirs == "0"
    assert not LateUsage.objects.exists() and not month.fake.of("invoiceitem")


def test_usage_that_came_too_late_for_its_invoice_is_a_line_of_its_own_on_the_next(month: Month) -> None:
    """Stripe closes the invoice while the outbox stands still."""
    month.subscription = subscribe(month.stripe, month.fake, month.world, month.clock, included=1_000_000, overage=90_000_000)
    month.hear()
    month.run = Run(month.world, month.engine, train={"steps": 1000})
    month.steps(2)
    overage = 2 * STEP_MICROS - 1_000_000
    sent, first = month.fake.usage[:], month.fake.usage[0]["timestamp"]
    month.fake.usage[:] = [event for event in sent if event["timestamp"] == first]  # of the second step nothing has arrived
    on_time = month.fake.used(month.fake.customer(month.world.sums.public_id)["id"], outbox.OVERAGE)
    month.until(NOW + MONTH)
    month.fake.finalize(month.fake.end_period(month.subscription)["id"])
    month.fake.usage[:] = sent
    month.hear()
    closed = Invoice.objects.order_by("-created_at")[0]
    month.clock.on(3 * HOUR)
    for _ in range(2):
        assert reconcile.compare(month.stripe, month.clock()) == []
    asked = LateUsage.objects.get()
    assert (asked.micros, len(month.fake.of("invoiceitem"))) == (overage - on_time, 1) and 0 < on_time < overage

    month.until(NOW + 2 * MONTH)
    following = month.fake.end_period(month.subscription)
    month.fake.finalize(following["id"])
    month.hear()
    line = next(line for line in Invoice.objects.get(invoice_id=following["id"]).lines if line["late_of"])
    assert (line["quantity"], line["amount_minor"], line["late_of"]) == (asked.micros, round(asked.micros / 10_000), closed.invoice_id)
    assert f"told after invoice {closed}" in line["text"]
    # Paid, the same micro-units come back as credit; and the file has both lines.
    paid = Entry.objects.filter(source_type="invoice", source=following["id"], step=0).get()
    assert paid.amount_micros == asked.micros
    told = [row for row in csv_rows(month, NOW) if row["told_hour"] and line["start"] <= row["told_hour"] < line["end"]]
    assert sum(int(row["overage_micros"]) for row in told) == on_time + line["quantity"]
    assert reconcile.compare(month.stripe, month.clock()) == []
    assert ledger.audit(month.world.sums).sound


def test_late_usage_is_asked_for_once_whatever_stripe_answers(month: Month) -> None:
    month.closes_before_its_usage_came()
    month.fake.fault = lambda: "lost" if month.fake.calls[-1] == ("POST", "/v1/invoiceitems") else None
    since = month.clock() - 40 * DAY
    with pytest.raises(Unreachable):
        late.put_on_next(month.stripe, since, month.clock())
    assert (LateUsage.objects.get().item_id, len(month.fake.of("invoiceitem"))) == ("", 1)
    month.fake.fault = lambda: None
    month.clock.on(30 * HOUR)  # no idempotency key protects any more
    assert [late.put_on_next(month.stripe, since, month.clock()) for _ in range(2)] == [1, 0]
    (item,) = month.fake.of("invoiceitem")
    assert LateUsage.objects.get().item_id == item["id"]
