from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.supervisor import settings, stack
from deploy.supervisor.settings import BadSettings, _portal_cores


def names(environment: dict[str, str]) -> list[str]:
    return [part.name for part in stack.parts(settings.load(environment))]


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MARLAAS_DEVICE", "cpu")


def test_with_nothing_set_every_part_is_started_here():
    assert names({}) == ["engine", "valkey", "migrations", "web", "worker", "ingester"]


def test_in_production_the_pages_wait_for_their_scripts_and_styles(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MARLAAS_PRODUCTION", "1")
    web = next(part for part in stack.parts(settings.load({})) if part.name == "web")
    assert "static" in web.after and "static" in names({})


def test_an_engine_that_runs_elsewhere_is_not_started_here():
    assert "engine" not in names({"MARLAAS_ENGINE_URL": "http://gpu:8801"})


def test_a_redis_that_runs_elsewhere_replaces_valkey():
    assert "valkey" not in names({"MARLAAS_REDIS_URL": "redis://cache:6379/0"})


def test_the_engine_listens_next_to_the_chosen_web_port():
    chosen = settings.load({"MARLAAS_WEB_PORT": "9000"})
    assert (chosen.url, chosen.engine_url) == ("http://127.0.0.1:9000", "http://127.0.0.1:9001")


@pytest.mark.parametrize("text", ["0", "70000", "http", "-1"])
def test_a_bad_port_is_named(text: str):
    with pytest.raises(BadSettings, match=r"MARLAAS_WEB_PORT=.*between 1 and 65535"):
        settings.load({"MARLAAS_WEB_PORT": text})


def test_a_taken_port_is_named_with_the_fix(free_port: Callable[[], int]):
    port = free_port()
    with socket.socket() as squatter:
        squatter.bind(("127.0.0.1", port))
        squatter.listen()
        with pytest.raises(BadSettings, match=rf"Port {port} .* PORT="):
            settings.load({"MARLAAS_WEB_PORT": str(port)}).check_ports()


def test_every_part_sees_the_same_folders():
    chosen = settings.load({})
    seen = {(part.environment["MARLAAS_STATE"], part.environment["MARLAAS_RUNTIME"]) for part in stack.parts(chosen) if part.environment}
    assert seen == {(str(chosen.state), str(chosen.runtime))}


def test_the_portal_leaves_the_samplers_and_the_trainers_cores_alone_where_there_are_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})
    assert _portal_cores((0,), (1,)) == (2, 3)


def test_on_two_cores_the_portal_shares_the_trainers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert _portal_cores((0,), (1,)) == (1,)


def test_on_one_core_all_share_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert _portal_cores((0,), (0,)) == (0,)
