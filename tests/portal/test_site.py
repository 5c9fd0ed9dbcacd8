"""What every answer of the site has: its policy, its health, its records pages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.apps import apps
from django.db import DatabaseError, connection
from django.test import Client
from django.urls import reverse

from portal import csp
from tenants.models import User
from tests.portal.world import World, with_factor


def test_the_web_process_says_when_it_is_fit(db: None) -> None:
    assert Client().get("/healthz").json() == {"ok": True}


def test_the_web_process_says_when_its_database_is_gone(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise DatabaseError("gone")

    with monkeypatch.context() as patched:
        patched.setattr(connection, "cursor", fail)
        answer = Client().get("/healthz")
    assert (answer.status_code, answer.json()["ok"]) == (503, False)


def test_pages_forbid_inline_code(db: None) -> None:
    policy = Client().get("/accounts/login/")["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def report(body: bytes) -> int:
    return Client().post("/csp-report/", body, content_type="application/csp-report").status_code


def test_a_policy_report_is_kept(settings, tmp_path: Path) -> None:
    settings.STATE = tmp_path
    assert report(json.dumps({"csp-report": {"blocked-uri": "inline"}}).encode()) == 204
    assert "inline" in (tmp_path / "log" / "csp-reports.jsonl").read_text()


@pytest.mark.parametrize(("body", "status"), [(b"{broken", 400), (b"[" * 5000, 400), (b'"' + b"x" * 9000 + b'"', 413)])
def test_a_bad_policy_report_is_refused(settings, tmp_path: Path, body: bytes, status: int) -> None:
    settings.STATE = tmp_path
    assert report(body) == status


def test_policy_reports_cannot_fill_the_disk(settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.STATE = tmp_path
    monkeypatch.setattr(csp, "REPORTS_FILE_MAX_BYTES", 100)
    for _ in range(50):
        report(b'{"x": "yyyyyyyyyyyyyyyyyyyy"}')
    assert (tmp_path / "log" / "csp-reports.jsonl").stat().st_size < 200


@pytest.fixture
def operator(world: World) -> Client:
    world.job()
    return world.client(with_factor(User.objects.create_superuser("op@example.org", "correct horse")))


OURS = ("tenants", "datasets", "rewards", "jobs")


def test_every_record_can_be_listed_by_an_operator(operator: Client) -> None:
    models = [model for label in OURS for model in apps.get_app_config(label).get_models() if model.__name__ != "Membership"]
    assert len(models) >= 11
    for model in models:
        answer = operator.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist"))
        assert answer.status_code == 200, model


def test_an_operator_sees_a_job_and_cannot_change_it(operator: Client, world: World) -> None:
    job = world.sums.jobs.get()
    page = reverse("admin:jobs_job_change", args=[job.pk])
    assert operator.get(page).status_code == 200
    assert operator.post(page, {"state": "succeeded"}).status_code == 403
    assert operator.get(reverse("admin:jobs_job_add")).status_code == 403


def test_an_operator_adds_a_person(operator: Client) -> None:
    form = {"email": "eve@example.org", "password1": "long enough 1", "password2": "long enough 1", "usable_password": "true"}
    form |= {"memberships-TOTAL_FORMS": "0", "memberships-INITIAL_FORMS": "0"}
    operator.post(reverse("admin:tenants_user_add"), form)
    assert User.objects.get(email="eve@example.org").check_password("long enough 1")


def test_a_tenants_owner_is_no_operator(world: World) -> None:
    assert world.client(world.alice).get("/admin/").status_code == 302


def test_the_records_pages_have_a_policy_of_their_own(operator: Client) -> None:
    assert "'unsafe-inline'" in operator.get("/admin/")["Content-Security-Policy"]


def test_the_records_share_the_sites_login(db: None) -> None:
    assert Client().get("/admin/login/?next=/admin/")["Location"].startswith("/accounts/login/")


@pytest.mark.parametrize(
    "path", ["/admin/", "/admin/login/", "/admin/jobs/job/", "/admin/billing/entry/add/", "/admin/jsi18n/", "/admin/nope/"]
)
def test_the_records_open_to_no_operator_without_a_second_factor(world: World, path: str) -> None:
    user = User.objects.create_superuser("op@example.org", "correct horse")
    for method in (Client.get, Client.post):
        answer = method(world.client(user), path)
        assert answer.status_code == 403
        assert "/accounts/2fa/" in answer.content.decode()
        assert "no-store" in answer["Cache-Control"]


def test_the_records_name_things_once_and_in_english(operator: Client) -> None:
    page = operator.get("/admin/").content.decode()
    assert "entrys" not in page.lower()
    assert "People and organisations" in page
    assert '<link rel="icon" href="/static/img/mark.svg" type="image/svg+xml"' in " ".join(page.split())


def test_a_refusal_is_one_line_of_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    assert world.client(world.vera).post("/settings/members/", {"email": "x@example.org"}).status_code == 403
    told = [record for record in caplog.records if record.name == "django.request"]
    assert [(record.status_code, record.exc_info) for record in told] == [(403, None)]
