"""What the database knows, for Prometheus: read at each scrape of the web process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db.models import Count
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily

from portal import gateway
from portal.console import overview
from portal.jobs.models import Job
from portal.jobs.models import State as JobState


def exposition(now: datetime) -> bytes:
    registry = CollectorRegistry()
    registry.register(State(now))
    return generate_latest(registry)


_WAITS = (
    ("submission", "submissions", "submission_seconds"),
    ("command", "commands", "command_seconds"),
    ("bill", "outbox", "outbox_seconds"),
)


class State:
    """A custom collector: the database's figures as they stand at this scrape."""

    def __init__(self, now: datetime):
        self._now = now

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts = dict(Job.objects.order_by().values_list("state").annotate(count=Count("pk")))
        yield _family("marlaas_portal_jobs", "Jobs by state", [({"state": state}, counts.get(state, 0)) for state in JobState.values])
        due = overview.due(self._now)
        known = [(what, due[count], due[age]) for what, count, age in _WAITS if due[count] is not None]
        yield _family("marlaas_unsent", "Rows that wait to be sent", [({"what": what}, count) for what, count, _ in known])
        yield _family(
            "marlaas_unsent_oldest_seconds", "Age of the oldest of them", [({"what": what}, age or 0.0) for what, _, age in known]
        )
        yield from self._engines()
        yield _family("marlaas_process_silent_seconds", "Since the last sign of life", list(_pulses(self._now)))
        yield from _money()
        usage = shutil.disk_usage(settings.STATE)
        yield _single("marlaas_disk_free_share", "Of the disk that holds the state folder", usage.free / usage.total)

    def _engines(self) -> Iterator[GaugeMetricFamily]:
        behind, seconds, answers = [], [], []
        for name, engine in gateway.of_each(overview.ask_engine, gateway.names()).items():
            label = {"engine": gateway.title(name)}
            lag = overview.lag(engine, self._now, name)
            behind += [(label, lag["behind"])] if lag["behind"] is not None else []
            seconds += [(label, lag["seconds"])] if lag["seconds"] is not None else []
            answers.append((label, 0 if engine["away"] else 1))
        yield _family("marlaas_events_behind", "Events in the engine's journal that are no rows yet", behind)
        yield _family("marlaas_events_behind_seconds", "For how long the oldest of them waits", seconds)
        yield _family("marlaas_engine_answers", "1 when the engine answered this scrape", answers)


def _pulses(now: datetime) -> Iterator[tuple[dict[str, str], float]]:
    for kind, pulse in overview.pulses(now).items():
        if pulse["seconds"] is not None:
            yield {"process": kind}, pulse["seconds"]


def _money() -> Iterator[GaugeMetricFamily]:
    for name, micros in overview.totals().items():
        yield _single(f"marlaas_accounts_{name}_micros", f"Sum of all accounts' {name}, in micro-units", micros)


def _family(name: str, text: str, samples: list[tuple[dict[str, str], float]]) -> GaugeMetricFamily:
    labels = sorted({label for given, _ in samples for label in given})
    family = GaugeMetricFamily(name, text, labels=labels)
    for given, value in samples:
        family.add_metric([given[label] for label in labels], value)
    return family


def _single(name: str, text: str, value: Any) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text)
    if value is not None:
        family.add_metric([], value)
    return family
