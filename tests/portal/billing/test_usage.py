"""The usage page, its files, the price list, and the same for programs."""

from __future__ import annotations

import csv
import io
from datetime import UTC, date, datetime, timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from portal.billing import costs, ledger, usage, views
from portal.billing.chart import chart
from portal.billing.models import Hold, Kind, Price
from portal.errors import Invalid
from portal.jobs.models import Job
from tests.portal.billing.books import STEP_MICROS, Run, account, line
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

JANUARY = "?month=2026-01"


def text(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return answer.content.decode()


def table(client: Client, path: str) -> list[dict[str, str]]:
    answer = client.get(path)
    assert answer.headers["Content-Type"].startswith("text/csv")
    return list(csv.DictReader(io.StringIO(b"".join(answer.streaming_content).decode())))


@pytest.fixture
def run(world: World, engine: FakeEngine) -> Run:
    account(world.sums, 10_000_000)
    run = Run(world, engine)
    run.ready(0)
    run.step(1)
    run.store()
    return run


def test_a_tenant_without_usage_is_told_what_will_appear(world: World) -> None:
    page = text(world.client(world.alice), f"/usage/{JANUARY}")
    assert "Nothing was used in January 2026" in page and "1,000.00 USD" in page and "starting credit" in page


def test_a_tenant_without_credit_is_told_that_no_job_can_start(world: World) -> None:
    account(world.sums, 0)
    assert "no new job can start" in text(world.client(world.alice), "/usage/")


def test_usage_is_shown_by_day_job_kind_and_model(world: World, run: Run) -> None:
    page = text(world.client(world.vera), f"/usage/{JANUARY}")
    for words in ("0.001755 USD", "2026-01-01", run.job.name, "Cached prefill", "tiny-math", '<rect class="use-trained"'):
        assert words in page
    assert "4,500 tokens" in text(world.client(world.vera), f"/usage/{JANUARY}&show=tokens")


def test_a_reversal_and_its_reason_can_be_read(world: World, run: Run) -> None:
    ledger.reverse(world.sums.entries.get(kind="trained"), "the trainer was wrong", "ops@example.org", NOW)
    page = text(world.client(world.alice), f"/usage/{JANUARY}")
    assert "the trainer was wrong" in page and "0.0009 USD" in page and "0.000855 USD" in page


@pytest.mark.parametrize("month", ["2026", "2026-13", "x", "0000-01", "2026-1", "9999-12", "2026-01-01"])
def test_a_month_that_is_none_is_named(world: World, month: str) -> None:
    assert "Month: must" in text(world.client(world.alice), f"/usage/?month={month}", 400)
    with pytest.raises(Invalid):
        usage.month_of(month, NOW)
    assert world.client(world.alice).get(f"/usage/daily.csv?month={month}").status_code == 400


def test_a_month_ends_where_the_next_begins() -> None:
    december = usage.month_of("2025-12", NOW)
    assert (december.next.key, december.previous.key, december.days[-1], len(december.days)) == (
        "2026-01",
        "2025-11",
        date(2025, 12, 31),
        31,
    )


def test_the_last_moment_of_a_month_belongs_to_it(world: World) -> None:
    last = datetime(2026, 1, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    ledger.post(world.sums, [line(1, at=last), line(2, at=last + timedelta(microseconds=1))], NOW)
    january = usage.month_of("2026-01", NOW)
    assert [usage.total(usage.by(world.sums, month, "day")).tokens for month in (january, january.next)] == [1000, 1000]
    assert len(table(world.client(world.alice), f"/usage/entries.csv{JANUARY}")) == 2  # with the starting credit


def test_the_files_add_up_to_the_page(world: World, run: Run) -> None:
    daily, entries = (table(world.client(world.alice), f"/usage/{name}.csv{JANUARY}") for name in ("daily", "entries"))
    assert sum(int(row["amount_micros"]) for row in daily) == -STEP_MICROS
    assert sum(int(row["amount_micros"]) for row in entries) == run.account.balance_micros
    for row in entries:
        if row["kind"] in Kind.values and not row["reverses"]:
            assert -int(row["amount_micros"]) == (int(row["quantity"]) * int(row["price_micros_per_million"]) + 500_000) // 1_000_000


def test_what_somebody_decided_is_found_by_an_index_of_its_own(world: World) -> None:
    """Among millions of entries the newest few would else be looked for row by row."""
    ledger.post(world.sums, [line(step) for step in range(3)], NOW)
    letters = views._letters(world.sums)
    assert "entry_decided" in letters.explain() or connection.vendor == "postgresql"  # which scans so few rows
    assert {entry.by for entry in letters} == {"installation"}


def test_a_cell_is_no_formula(world: World) -> None:
    ledger.grant(world.sums, "k", 5, "=1+1", "ops", NOW)
    assert [row["reason"] for row in table(world.client(world.alice), f"/usage/entries.csv{JANUARY}")][-1] == "'=1+1"


def test_a_stranger_sees_nothing_of_it(world: World, run: Run) -> None:
    client, api = world.client(world.charlie), world.api(world.charlie)
    assert run.job.name not in text(client, f"/usage/{JANUARY}")
    assert table(client, f"/usage/daily.csv{JANUARY}") == []
    assert api.get(f"/api/v1/usage/{JANUARY}").json()["rows"] == []
    assert {entry["kind"] for entry in api.get("/api/v1/billing/entries/").json()["results"]} <= {"credit"}
    assert client.get(f"/jobs/{run.job.public_id}/cost/").status_code == 404


@pytest.mark.parametrize("path", ["/usage/", "/usage/daily.csv", "/usage/entries.csv", "/jobs/job_x/cost/"])
def test_nobody_reads_it_without_logging_in(world: World, path: str) -> None:
    assert Client().get(path).status_code == 302


@pytest.mark.parametrize("path", ["/api/v1/billing/", "/api/v1/usage/", "/api/v1/billing/entries/"])
def test_the_api_asks_for_its_scope(world: World, path: str) -> None:
    assert Client().get(path).status_code == 401
    assert world.api(world.alice, scopes=("jobs:read",)).get(path).status_code == 403
    assert world.api(world.alice, scopes=("billing:read",)).get(path).status_code == 200


def test_the_api_says_what_the_page_shows(world: World, run: Run) -> None:
    api = world.api(world.alice)
    found = api.get(f"/api/v1/usage/{JANUARY}&by=kind").json()
    assert found["total"]["cost_micros"] == STEP_MICROS
    assert {row["name"]: row["cost_micros"] for row in found["rows"]} == {
        "trained": 900,
        "sampled": 800,
        "prefill": 40,
        "cached_prefill": 15,
    }
    money = api.get("/api/v1/billing/").json()
    assert (money["balance_micros"], money["currency"], money["plan"]) == (10_000_000 - STEP_MICROS, "USD", "standard")
    assert money["holds"][0]["job"] == run.job.public_id
    assert money["available_micros"] == money["balance_micros"] - money["held_micros"]
    assert {quota["quota"] for quota in money["quotas"]} == {"open_jobs", "tokens_per_month", "storage_bytes"}
    assert api.get("/api/v1/usage/?by=colour").json()["error"]["param"] == "by"


def test_entries_come_page_by_page(world: World, run: Run) -> None:
    first = world.api(world.alice).get("/api/v1/billing/entries/?limit=2").json()
    assert len(first["results"]) == 2 and first["next"]


def test_a_jobs_cost_is_on_its_page_and_in_the_api(world: World, run: Run) -> None:
    assert "0.001755 USD" in text(world.client(world.vera), f"/jobs/{run.job.public_id}/")
    assert "0.001755 USD" in text(world.client(world.vera), f"/jobs/{run.job.public_id}/cost/")
    api = world.api(world.alice)
    assert api.get(f"/api/v1/jobs/{run.job.public_id}/").json()["cost_micros"] == STEP_MICROS
    assert api.get("/api/v1/jobs/").json()["results"][0]["cost_micros"] == STEP_MICROS
    assert costs.of(Job.objects.get(pk=run.job.pk)) == STEP_MICROS


def test_a_job_that_billing_stopped_says_so_and_an_ended_one_asks_no_more(world: World, run: Run) -> None:
    Hold.objects.filter(job=run.job).update(stop_code="credit", stop_reason="no credit")
    page = text(world.client(world.vera), f"/jobs/{run.job.public_id}/cost/")
    assert "Billing asked this job to pause: no credit" in page and "hx-get" in page
    Job.objects.filter(pk=run.job.pk).update(state="cancelled")
    assert "hx-get" not in text(world.client(world.vera), f"/jobs/{run.job.public_id}/cost/")


def test_prices_are_public_and_tell_of_those_to_come(world: World) -> None:
    soon = datetime.now(UTC) + timedelta(days=3)
    Price.objects.create(model="", kind="sampled", micros_per_million=444_000, effective_from=soon, set_by="ops")
    Price.objects.create(model="big", kind="sampled", micros_per_million=9_000_000, effective_from=soon, set_by="ops")
    for client in (Client(), world.client(world.alice)):
        page = text(client, "/prices/")
        assert "0.40 USD" in page and "0.444 USD from" in page and "9.00 USD from" in page
    found = Client().get("/api/v1/prices/").json()
    assert {"kind": "sampled", "model": "", "micros_per_million": 400_000} in found["prices"]
    assert {"kind": "sampled", "model": "big", "micros_per_million": None} in found["prices"]


def test_the_page_asks_no_more_of_the_database_for_more_usage(world: World) -> None:
    client = world.client(world.alice)

    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            client.get(f"/usage/{JANUARY}")
        return len(found)

    ledger.post(world.sums, [line(1, source="job_x")], NOW)
    few = queries()
    ledger.post(world.sums, [line(n % 7, source=f"job_{n}", at=NOW + timedelta(hours=n)) for n in range(300)], NOW)
    assert queries() == few


def test_the_chart_stacks_kinds_to_the_height_of_the_dearest_day(world: World) -> None:
    ledger.post(world.sums, [line(1, quantity=1000), line(1, Kind.TRAINED, 1000), line(2, at=NOW + timedelta(days=1))], NOW)
    january = usage.month_of("2026-01", NOW)
    drawn = chart(january, usage.by(world.sums, january, "day"), money=False)
    heights = [[(bar.kind, bar.y, bar.height) for bar in day.bars] for day in drawn.days]
    assert heights == [[("sampled", "80.00", "80.00"), ("trained", "0.00", "80.00")], [("sampled", "80.00", "80.00")]]
    assert drawn.top == "2,000 tokens"
    assert chart(january.next, [], money=True) is None
