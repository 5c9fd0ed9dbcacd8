"""deploy/BILLING.md promises tenants what is billed when: each row has its tests, and each number is the code's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from portal.billing import forecast, gate, outbox, standing
from portal.billing.models import MILLION, Kind
from portal.billing.setup import DEFAULT_PRICES
from tests.portal.billing import test_charging as charging
from tests.portal.billing import test_notices as notices
from tests.portal.billing import test_spending as spending
from tests.portal.jobs import test_compare as restored
from tests.portal.openai import test_chat as chats
from tests.portal.openai import test_streams as streams

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "deploy" / "BILLING.md").read_text()
ENDS = charging.test_what_was_sampled_before_the_end_is_billed_only_if_the_end_was_the_tenants_doing
PROBE_FAILS = spending.test_a_probe_that_fails_is_billed_only_if_it_was_the_tenants_doing
RESTORED = restored.test_an_engine_restored_to_an_older_moment_goes_on_and_nothing_is_billed_twice
CASES = {
    "A step commits": charging.test_a_committed_step_is_billed_by_kind,
    "The same report arrives twice": charging.test_an_event_that_comes_twice_changes_nothing,
    "No group of the step carries a signal": charging.test_training_that_taught_nothing_is_free_and_says_why,
    "The gradient was not finite, and the step was skipped": charging.test_training_that_taught_nothing_is_free_and_says_why,
    "The platform failed a step": charging.test_a_step_that_the_platform_failed_is_free,
    "A batch is lost and sampled again": charging.test_an_attempt_that_was_lost_is_free_and_the_next_is_billed,
    "A training is lost and done again from the same batch": charging.test_a_training_that_is_repeated_is_billed_once,
    "The engine crashes, and the job resumes": charging.test_a_crash_of_the_engine_bills_each_committed_step_once,
    "The engine was restored from a backup, and repeats steps": RESTORED,
    "You cancel": ENDS,
    "Your reward, or your configuration, ends the job": ENDS,
    "The platform ends the job": ENDS,
    "The engine refuses the job": charging.test_a_job_that_the_engine_refused_costs_nothing_and_frees_its_hold,
    "An evaluation": charging.test_an_evaluation_is_billed_once_per_version,
    "A model answers in a chat": chats.test_an_answer_is_billed_once_by_its_usage,
    "You leave a chat before its end, streamed or not": streams.test_a_client_that_leaves_pays_for_what_had_come,
    "You do not read a chat, or slowly": streams.test_an_answer_that_nobody_reads_is_billed_when_the_model_is_done,
    "The machine that answers a chat dies": streams.test_an_answer_whose_web_process_died_costs_nothing_and_is_not_open_for_ever,
    "The platform fails an answer": chats.test_what_the_platform_fails_is_written_down_and_costs_nothing,
    "A probe ends": spending.test_a_probe_is_billed_what_it_sampled_once,
    "You cancel a probe": spending.test_a_probe_that_is_cancelled_pays_for_the_rows_that_were_done,
    "Your rows or your reward end a probe": PROBE_FAILS,
    "The platform fails a probe": PROBE_FAILS,
    "The engine forgets a probe, and begins it again": spending.test_a_probe_that_the_engine_forgot_begins_again_and_is_billed_once,
    "A reward with judges is tried": spending.test_a_trial_is_billed_its_judges_tokens,
    "A reward without judges is tried": spending.test_a_trial_without_judges_is_free_and_needs_no_credit,
    "You stop a trial, or your credit ends it": spending.test_a_trial_that_is_stopped_pays_for_what_is_graded,
    "One answer is graded by a judge, in the playground or by API": spending.test_one_answer_graded_by_a_judge_is_billed,
    "Datasets are stored": spending.test_storage_is_counted_once_for_each_day_that_is_over,
    "A report arrives late": charging.test_a_late_event_costs_what_it_cost_when_it_happened,
    "The job is older than billing on this installation": charging.test_a_job_that_is_older_than_billing_is_not_billed,
}


def first_cells(heading: str) -> list[str]:
    table = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [row.split("|")[1].strip() for row in table.splitlines() if row.startswith("|")][2:]


def test_each_case_of_the_table_has_its_test_and_each_test_its_row() -> None:
    assert first_cells("What is billed when") == list(CASES)


def test_every_kind_of_token_is_explained() -> None:
    assert first_cells("What is counted") == [kind.label.lower() for kind in Kind if kind != Kind.STORAGE]


def test_the_prices_in_the_text_are_those_of_a_new_installation() -> None:
    line = next(line for line in TEXT.splitlines() if line.startswith("Prices for a million"))
    told = dict(re.findall(r"(?:: |, )([a-z ]+) (\d+\.\d+)", line))
    assert {name: round(float(price) * MILLION) for name, price in told.items()} == {
        Kind(kind).label.lower(): micros for kind, micros in DEFAULT_PRICES.items()
    }


def test_the_text_says_how_many_steps_are_covered() -> None:
    assert set(re.findall(r"(\d+) steps", TEXT)) == {str(gate.STEPS_AHEAD)}


LEFT = notices.test_a_payment_that_does_not_settle_and_a_checkout_that_is_left_bring_nothing
CREDIT_CASES = {
    "A Checkout is left, or its payment never settles": LEFT,
    "A payment is refunded, in part or whole": notices.test_refunds_in_parts_take_their_credit_as_rows_of_their_own,
    "A refund fails": notices.test_a_refund_that_fails_gives_the_credit_back,
    "A plan's fee is refunded": notices.test_the_refund_of_a_plans_fee_takes_at_most_the_credit_that_it_brought,
    "Your bank disputes a payment": notices.test_a_dispute_takes_the_credit_and_gives_it_back_when_it_is_won,
}


def test_each_case_of_bought_credit_has_its_test() -> None:
    assert first_cells("Buying credit, plans and invoices") == list(CREDIT_CASES)


def test_the_days_and_hours_in_the_text_are_the_codes(settings: Any) -> None:
    grace = TEXT.split("## When a payment fails\n", 1)[1].split("\n## ", 1)[0]
    assert re.findall(r"(\d+) days", grace) == [str(settings.GRACE_DAYS), str(standing.STOPS_AFTER.days)]
    assert f"older than {outbox.OLDEST.days} days" in TEXT
    assert f"for more than {outbox.ALARM_AGE // outbox.HOUR} hours" in TEXT
    assert f"the last {forecast.PACE_DAYS} days" in TEXT
