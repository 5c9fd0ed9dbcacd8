"""What Prometheus gets, and that nobody asks for a figure that does not exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from django.test import Client

from engine import exposition
from portal import metrics, metrics_state, pulse
from portal.jobs import delivery
from portal.jobs.models import EngineCursor
from tests.portal.fake_engine import FakeEngine
from tests.portal.world import NOW, World

DEPLOY = Path("deploy")
ALERTS = (DEPLOY / "alerts" / "marlaas.yaml").read_text()
LABELS = {
    "engine",
    "method",
    "view",
    "status",
    "le",
    "kind",
    "why",
    "task",
    "outcome",
    "state",
    "what",
    "process",
    "phase",
    "counter",
    "tier",
}
ENGINE = {
    "jobs": [{"state": "running", "phase": "rollout", "version": 3}],
    "kv": {"reserved_bytes": 1, "budget_bytes": 2},
    "slots": {"used": 1, "total": 2},
    "admission": "open",
    "epoch": 1,
    "uptime_seconds": 1.0,
    "sandbox": {"tier": "plain"},
    "disk": {"free_bytes": 8, "total_bytes": 100},
    "sampler": {"kv_used": 0.5, "waiting": 0, "preempted": 0, "replicas": 1, "replicas_alive": 1},
}


@pytest.fixture
def told(world: World, engine: FakeEngine) -> str:
    """Everything that the portal tells, after a little of everything has happened."""
    delivery.deliver(world.job().pk, NOW)
    EngineCursor.objects.create(engine=engine.engine, current=True, updated_at=NOW)
    pulse.beat("worker", NOW)
    world.client(world.alice).get("/jobs/")
    metrics.ingest_failures.labels("engine_away").inc()
    metrics.events.labels("step").inc()
    metrics.tasks.labels("portal.jobs.tasks.sweep", "success").inc()
    metrics.task_seconds.labels("portal.jobs.tasks.sweep").observe(1)
    return (metrics.exposition() + metrics_state.exposition(NOW)).decode()


def names(text: str) -> set[str]:
    """As queries spell them."""
    return {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line.startswith("marlaas_")}


def asked(expression: str) -> set[str]:
    return set(re.findall(r"\bmarlaas_[a-z_]+\b", expression))


def test_only_the_token_opens_the_door(world: World, settings) -> None:
    settings.METRICS_TOKEN = "secret"
    assert Client().get("/metrics").status_code == 404
    assert world.client(world.alice).get("/metrics").status_code == 404
    answer = Client().get("/metrics", headers={"Authorization": "Bearer secret"})
    assert (answer.status_code, b"marlaas_portal_jobs" in answer.content) == (200, True)


def test_without_a_token_nobody_scrapes(world: World, settings) -> None:
    settings.METRICS_TOKEN = ""
    assert Client().get("/metrics", headers={"Authorization": "Bearer "}).status_code == 404


def test_a_request_counts_under_its_routes_name_and_no_id(told: str) -> None:
    assert 'marlaas_http_requests_total{method="GET",status="2xx",view="jobs:list"}' in told


def test_no_label_names_a_tenant_a_job_or_a_person(told: str, world: World) -> None:
    used = {label for line in told.splitlines() if line.startswith("marlaas_") for label in re.findall(r'(\w+)="', line)}
    assert used <= LABELS
    for secret in (world.sums.public_id, world.sums.jobs.get().public_id, "Sums", "alice"):
        assert secret not in told


def test_the_database_says_what_waits(told: str) -> None:
    assert 'marlaas_portal_jobs{state="submitted"} 1.0' in told
    assert 'marlaas_unsent{what="submission"} 0.0' in told
    assert "marlaas_engine_answers" in told


def test_a_scrape_answers_while_the_engine_is_down(world: World, engine: FakeEngine) -> None:
    engine.down = True
    assert b'marlaas_engine_answers{engine="main"} 0.0' in metrics_state.exposition(NOW)


def test_every_alert_asks_for_figures_that_exist(told: str) -> None:
    there = names(told) | names(exposition.prometheus(ENGINE))
    expressions = re.findall(r"expr: '(.*)'", ALERTS)
    assert len(expressions) == ALERTS.count("- alert:") >= 15
    assert {name for expression in expressions for name in asked(expression)} <= there


def test_every_scrape_that_an_alert_goes_by_has_that_name() -> None:
    names = re.findall(r"job_name: (\S+)", (DEPLOY / "alerts" / "scrape.yaml").read_text())
    assert set(re.findall(r'\bjob="([a-z-]+)"', ALERTS)) <= set(names)


def test_every_alert_has_its_section_in_the_runbook() -> None:
    alerts = re.findall(r"- alert: (\w+)", ALERTS)
    assert alerts == re.findall(r"^### (\w+)$", (DEPLOY / "RUNBOOK.md").read_text(), re.MULTILINE)


def test_the_dashboard_asks_for_figures_that_exist(told: str) -> None:
    there = names(told) | names(exposition.prometheus(ENGINE))
    panels = json.loads((DEPLOY / "grafana" / "marlaas.json").read_text())["panels"]
    wanted = {name for panel in panels for target in panel["targets"] for name in asked(target["expr"])}
    assert wanted <= there and len(panels) >= 15


def test_every_figure_is_documented(told: str) -> None:
    page = (DEPLOY / "OPERATORS.md").read_text()
    families = {re.sub(r"_(total|bucket|sum|count|created)$", "", name) for name in names(told)} | names(exposition.prometheus(ENGINE))
    assert {family for family in families if f"`{family}" not in page} == set()
